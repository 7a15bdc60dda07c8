# shellcheck shell=bash
# Measuring: one timed run, alternating rounds of several contenders, medians, and a description of the machine.
# Never does: keep a number that it did not measure, or name the machine or its paths. Needs common.sh and against.sh.
#
# NAME.tsv in results_dir has one line a run: contender, seconds, peak memory of its largest process in KiB.
set -euo pipefail

last_seconds=0
last_peak_kib=0

micros_now() {
    echo "${EPOCHREALTIME/[.,]/}"
}

# What comes before a timed run: nothing of an earlier one is still waiting for the disk.
settle=sync

# timed COMMAND ...: runs it as the server's user, from its first to its last byte; sets last_seconds and last_peak_kib, leaves its output in last.out and last.err.
timed() {
    local start end
    "$settle"
    start=$(micros_now)
    as_server /usr/bin/time --quiet --format %M --output "$bench_dir/last.peak" "$@" \
        >"$bench_dir/last.out" 2>"$bench_dir/last.err" ||
        { tail -n 20 "$bench_dir/last.err" "$bench_dir/last.out" >&2; die "failed: $*"; }
    end=$(micros_now)
    last_seconds=$(awk -v us=$((end - start)) 'BEGIN { printf "%.3f", us / 1e6 }')
    last_peak_kib=$(tail -n 1 "$bench_dir/last.peak")
}

# take_turn CONTENDER [NAME]: one run in a contest, which is kept under this name. Uses the contest's variables.
take_turn() {
    local contender=$1 called=${2:-${1#run_}}
    "$contender"
    note "$name, $( ((round == 0)) && echo "warm-up" || echo "round $round of $pairs"): $called" \
        "$last_seconds s, peak $((last_peak_kib / 1024)) MiB"
    ((round == 0)) || printf '%s\t%s\t%s\n' "$called" "$last_seconds" "$last_peak_kib" >>"$file.new"
}

# take_both_turns CONTENDER: of both builds of Windlass. The one that begins changes each round.
take_both_turns() {
    local called=${1#run_}
    ((round % 2 == 0)) || as_other take_turn "$1" "${called/windlass/against}"
    take_turn "$1"
    ((round % 2 == 1)) || as_other take_turn "$1" "${called/windlass/against}"
}

# contest NAME CONTENDER ...: each contender is a function that prepares and then calls timed once. One round warms up;
# then they take turns, so that a slow minute of the machine meets them all.
contest() {
    local name=$1 round contender file="$results_dir/$1.tsv"
    shift
    : >"$file.new"
    for ((round = 0; round <= pairs; round++)); do
        for contender in "$@"; do
            if takes_part "$contender"; then take_both_turns "$contender"; else take_turn "$contender"; fi
        done
    done
    build_name >"$results_dir/$name.build"
    mv "$file.new" "$file"
}

# median: of the numbers on standard input, one a line.
median() {
    sort -g | awk '{ v[NR] = $1 } END { if (NR == 0) exit 1; print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# median_of NAME CONTENDER [COLUMN]: of seconds (2) or of peak memory (3).
median_of() {
    awk -F '\t' -v who="$2" -v column="${3:-2}" '$1 == who { print $column }' "$results_dir/$1.tsv" | median
}

quotient() {
    awk -v a="$1" -v b="$2" -v digits="${3:-2}" 'BEGIN { printf "%.*f", digits, a / b }'
}

at_most() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'
}

# json FIELD: of the last object that the last run printed.
json() {
    jq --raw-output --slurp "last | $1" "$bench_dir/last.out"
}

drop_page_cache() {
    sync
    as_root sh -c 'echo 3 > /proc/sys/vm/drop_caches'
}

# What a backup of a data directory reads: WAL segments are left out by everybody.
cluster_bytes() {
    as_server du --summarize --block-size=1 --apparent-size --exclude=pg_wal "$1" | cut -f 1
}

# The commit of what was measured: rows measured at different times say so.
build_name() {
    git -C "$repo_root" describe --always --dirty 2>/dev/null || echo "no git"
}

machine_description() {
    printf '%s, %s cores, %s GiB of memory, Linux %s, %s' \
        "$(lscpu | sed -n 's/^Model name: *//p' | head -n 1)" "$(nproc)" \
        "$(awk '/^MemTotal/ { printf "%.0f", $2 / 1048576 }' /proc/meminfo)" \
        "$(uname -r | cut -d - -f 1)" "$(findmnt --noheadings --output FSTYPE --target "$bench_dir")"
}

version_description() {
    printf 'Windlass %s, PostgreSQL %s, pgBackRest %s, SQLite %s, %s' \
        "$("$windlass" --version | awk '{ print $2 }')" \
        "$("$PG_BINDIR/postgres" --version | awk '{ print $3 }')" \
        "$("$pgbackrest" version | awk '{ print $2 }')" \
        "$(sqlite3 --version | awk '{ print $1 }')" \
        "tpchgen-cli $tpchgen_version"
}
