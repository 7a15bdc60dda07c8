# shellcheck shell=bash
# soak crash: rounds in which a writer in rollback mode is killed at a drawn system call, before or after it, so that a hot
# journal lies beside its database. In some rounds the file is cut off as well. Then the database is backed up, and the set is
# restored: it must hold the state to which SQLite itself rolls a copy back. Only a file that was cut off may be refused. At the
# end the counts are printed, for docs/reliability.md.
# Never does: end a process that it did not start. Needs common.sh, install.sh, show.sh, writers.sh, rounds.sh; of scripts/soak
# windlass, seed, rounds, draw, drawn, begin_work, end_work.
set -euo pipefail

# The system calls that change what is on the disk.
changing_calls='^(pwrite64|ftruncate|fsync|fdatasync|unlink|unlinkat)$'
crash_script=
crash_call=
crash_number=0

# draw_script MODE LENGTH: in crash_script what a writer does in this journal mode, after LENGTH transactions.
draw_script() {
    local number=$(($2 + 1)) last kind cache
    draw 10 -2000
    cache=$drawn
    draw small wide grow shrink vacuum
    kind=$drawn
    {
        printf 'PRAGMA journal_mode = %s; PRAGMA cache_size = %d;\n' "$1" "$cache"
        case $kind in
            small) for ((last = number + 2; number <= last; number++)); do print_transaction "$number"; done ;;
            wide)
                echo 'BEGIN IMMEDIATE;'
                for ((last = number + 99; number <= last; number++)); do print_transfer "$number"; done
                echo 'COMMIT;'
                ;;
            grow) print_transaction "$number" "INSERT INTO orders WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL
                SELECT i + 1 FROM n WHERE i < 3000) SELECT (SELECT max(id) FROM orders) + i, i, 'now', 'grown',
                printf('door %d', i), printf('%064d', i * $number) FROM n;" ;;
            shrink) print_transaction "$number" "DELETE FROM orders WHERE id > 1000;" ;;
            vacuum)
                draw 512 1024 4096 16384
                print_transaction "$number"
                printf 'PRAGMA page_size = %d; VACUUM;\n' "$drawn"
                print_transaction $((number + 1))
                ;;
        esac
    } >crash.sql
    crash_script=$kind
}

# Runs the script on a copy, and draws one of its calls: in crash_call its name, in crash_number which of that name it is. After
# a call is before the next one, whatever that is.
draw_call() {
    local -A seen=()
    local -a names=() numbers=() changing=()
    local name
    cp victim.db rehearsal.db
    strace --output=crash.trace sqlite3 -bail rehearsal.db <crash.sql >/dev/null
    while read -r name; do
        seen[$name]=$((${seen[$name]:-0} + 1))
        [[ ! $name =~ $changing_calls ]] || changing+=("${#names[@]}")
        names+=("$name") numbers+=("${seen[$name]}")
    done < <(sed -n 's/^\([a-z0-9_]*\)(.*/\1/p' crash.trace)
    random_below "${#changing[@]}"
    local at=${changing[drawn]}
    draw before after
    count "kills $drawn ${names[at]}"
    [[ $drawn == before ]] || at=$((at + 1))
    crash_call=${names[at]} crash_number=${numbers[at]}
}

# Runs the script on victim.db up to that call. The kernel kills the writer as it enters the call, before the call does anything.
run_and_kill() {
    local status=0
    # The shell tells of a killed program on its standard error.
    {
        strace --output=/dev/null --trace="$crash_call" --inject="$crash_call:signal=KILL:when=$crash_number" \
            sqlite3 -bail victim.db <crash.sql >/dev/null || status=$?
    } 2>/dev/null
    ((status == 137)) || die "the writer was not killed at call $crash_number of $crash_call, and ended with $status"
    count "kills"
    if [[ -s victim.db-journal && $(od -An -tx1 -N 8 victim.db-journal) == ' d9 d5 05 f9 20 a1 63 d7' ]]; then
        count "hot journals"
    fi
}

# The state to which SQLite rolls the database back, in judge.db.
roll_copy_back() {
    local suffix
    rm -f judge.db*
    for suffix in '' -journal; do
        [[ ! -e victim.db$suffix ]] || cp "victim.db$suffix" "judge.db$suffix"
    done
    expect "SQLite makes the killed writer's database sound" ok "$(sqlite3 judge.db "PRAGMA integrity_check")"
}

cut_victim() {
    local bytes
    bytes=$(stat --format %s victim.db)
    random_below $((bytes - 512))
    truncate -s $((512 + drawn)) victim.db
}

# judge_crash CUT LENGTH: the backup of victim.db, which holds LENGTH transactions; CUT says whether it was cut off.
judge_crash() {
    local cut=$1 length=$2 status=0
    back_up_round victim.db || status=$?
    if ((status == 0)); then
        restore_round
        compare_ledgers judge.db restored.db "$length" "$length"
        count "backups of a $cut file, with the one right state"
    elif [[ $cut == "cut off" && $status == 1 && -z $(find set -type f) ]] && grep --quiet "is cut off" backup.out; then
        count "backups of a $cut file, refused, nothing left"
    else
        cat backup.out >&2 && die "the backup of a database with a killed writer ended with $status"
    fi
    [[ $cut == "cut off" ]] || expect "the database is as SQLite makes it" "$length" "$(ledger_length victim.db)"
}

# crash_round MODE
crash_round() {
    local first last length cut=whole
    first=$(ledger_length victim.db)
    draw_script "$1" "$first"
    draw_call
    note "crash: $1, $crash_script, killed at call $crash_number of $crash_call"
    run_and_kill
    roll_copy_back
    last=$(ledger_length rehearsal.db)
    length=$(ledger_length judge.db)
    expect "SQLite rolls it back to transaction $length; the writer went from $first to $last" \
        1 "$((first <= length && length <= last))"
    draw no no no yes
    [[ $drawn == no ]] || { cut_victim && cut="cut off"; }
    count "rounds: $1, $crash_script"
    judge_crash "$cut" "$length"
    rm -f victim.db* rehearsal.db*
    mv judge.db victim.db
}

print_crash_counts() {
    local name
    say "crash: $rounds rounds, seed $seed, SQLite $(sqlite3 :memory: "SELECT sqlite_version()")"
    for name in "${!counted[@]}"; do
        printf '| %s | %d |\n' "$name" "${counted[$name]}"
    done | sort
}

soak_crash() {
    local round mode
    note "crash: $rounds rounds, seed $seed"
    RANDOM=$seed
    need strace:strace
    begin_work
    make_ledger_database victim.db 1000
    quiet_sqlite victim.db "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = FULL; VACUUM"
    counted=()
    for ((round = 1; round <= rounds; round++)); do
        draw delete truncate persist
        mode=$drawn
        note "crash: round $round of $rounds"
        crash_round "$mode"
        rm -rf set restored.db*
    done
    print_crash_counts
    end_work
}
