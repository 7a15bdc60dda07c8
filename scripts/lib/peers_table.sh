# shellcheck shell=bash
# Writes docs/bench-peers.md from the results that are there; runs that were not measured are not mentioned.
# Never does: measure, round in anybody's favour, or name the machine. Needs measure.sh.
set -euo pipefail

# run, its title, Windlass's contender, then each peer and the ratio that is asked for; - if none is.
peer_lines=(
    "zstd|zstd:1 to one file|windlass|pgbackrest|0.36|pg_basebackup|0.50|walrus|-"
    "pgbench|zstd:1, pgbench|windlass|pgbackrest|0.50|walrus|-"
    "events|zstd:1, uuid and jsonb|windlass|pgbackrest|0.50|walrus|-"
    "none|uncompressed to one file|windlass|pgbackrest|0.40|pg_basebackup|0.40|walrus|-"
    "nul|uncompressed to \`nul\`|windlass_nul|basebackup_nul_blackhole|0.25|basebackup_nul_stdout|0.25"
    "restore|restore of the zstd:1 set|windlass_restore|pgbackrest_restore|0.45|walrus_restore|-"
    "small|SMALL small tables, zstd:1|windlass|pgbackrest|0.50|pg_basebackup|0.80|walrus|-"
    "sqlite|SQLite, uncompressed|windlass_sqlite|sqlite3|0.50"
    "sqlitezstd|SQLite, zstd:1|windlass_sqlite_pages|windlass_sqlite_raw|0.90"
)

# run, its title, Windlass's contender, the peer, and the ratio of stored bytes that is asked for.
stored_lines=(
    "zstd|zstd:1, TPC-H|windlass|pgbackrest|0.60"
    "zstd|zstd:1, TPC-H|windlass|walrus|-"
    "pgbench|zstd:1, pgbench|windlass|pgbackrest|0.75"
    "pgbench|zstd:1, pgbench|windlass|walrus|-"
    "events|zstd:1, uuid and jsonb|windlass|pgbackrest|0.75"
    "events|zstd:1, uuid and jsonb|windlass|walrus|-"
    "sqlitezstd|SQLite, zstd:1|windlass_sqlite_pages|windlass_sqlite_raw|0.55"
)

# peer_title RUN PEER: the peer and, where several were tried, the setting that was its best.
peer_title() {
    case $2 in
        pg_basebackup) echo "pg_basebackup, $(tr _ ' ' <"$results_dir/$1.setting")" ;;
        pgbackrest*) echo "pgBackRest" ;;
        walrus) echo "wal-rus, $(<"$results_dir/$1.walrus")" ;;
        walrus_restore) echo "wal-rus" ;;
        basebackup_nul_blackhole) echo "pg_basebackup, blackhole" ;;
        basebackup_nul_stdout) echo "pg_basebackup, tar to /dev/null" ;;
        windlass_sqlite_raw) echo "Windlass, \`--pages off\`" ;;
        sqlite3) echo "sqlite3 .backup" ;;
        *) echo "$2" ;;
    esac
}

# verdict OURS THEIRS LIMIT: whether the ratio is as it is asked for.
verdict() {
    if [[ $3 == - ]]; then
        echo -
    elif at_most "$(quotient "$1" "$2" 6)" "$3"; then
        echo yes
    else
        echo no
    fi
}

# peer_row RUN TITLE OURS PEER LIMIT: nothing of a peer that took no part.
peer_row() {
    local ours theirs ratio
    grep -q "^$4"$'\t' "$results_dir/$1.tsv" || return 0
    ours=$(median_of "$1" "$3")
    theirs=$(median_of "$1" "$4")
    ratio=$(quotient "$ours" "$theirs")
    printf '| %s | %.2f | %s | %.2f | %s | %s | %s | %s | %s |\n' "$2" "$ours" "$(peer_title "$1" "$4")" "$theirs" \
        "$ratio" "$5" "$(verdict "$ours" "$theirs" "$5")" "$(grep -c "^$3"$'\t' "$results_dir/$1.tsv")" "$(cat "$results_dir/$1.build")"
}

peer_rows() {
    local line fields at
    for line in "${peer_lines[@]}"; do
        IFS='|' read -r -a fields <<<"${line/SMALL/$small_tables}"
        [[ -e $results_dir/${fields[0]}.tsv ]] || continue
        for ((at = 3; at < ${#fields[@]}; at += 2)); do
            peer_row "${fields[@]:0:3}" "${fields[@]:at:2}"
        done
    done
}

stored_of() {
    awk -F '\t' -v who="$2" '$1 == who { print $2 }' "$results_dir/$1.stored"
}

stored_rows() {
    local line run title ours peer limit
    for line in "${stored_lines[@]}"; do
        IFS='|' read -r run title ours peer limit <<<"$line"
        grep -qs "^$peer"$'\t' "$results_dir/$run.stored" || continue
        printf '| %s | %.0f | %s | %.0f | %s | %s | %s |\n' "$title" "$(quotient "$(stored_of "$run" "$ours")" 1000000 6)" \
            "$(peer_title "$run" "$peer")" "$(quotient "$(stored_of "$run" "$peer")" 1000000 6)" \
            "$(quotient "$(stored_of "$run" "$ours")" "$(stored_of "$run" "$peer")")" "$limit" \
            "$(verdict "$(stored_of "$run" "$ours")" "$(stored_of "$run" "$peer")" "$limit")"
    done
}

# The version of wal-rus, if it took part.
walrus_description() {
    ! grep -qs '^walrus' "$results_dir"/*.tsv || printf ', wal-rus %s' "$walrus_version"
}

write_peers_table() {
    local page="$repo_root/docs/bench-peers.md"
    need_pgbackrest
    mkdir -p "$repo_root/docs"
    {
        echo "# Windlass compared with other tools"
        echo
        echo "\`scripts/bench peers\` wrote this page. [bench.md](bench.md) says what each run is, and why the comparison is fair."
        echo "Seconds are medians of whole processes; the runs took turns, with a warm cache. TPC-H at scale $scale."
        echo
        echo "| run | Windlass s | other tool | its s | ratio | goal: at most | met | rounds | commit |"
        echo "|---|---:|---|---:|---:|---:|---|---:|---|"
        peer_rows
        echo
        echo "| what is stored | Windlass MB | other | its MB | ratio | goal: at most | met |"
        echo "|---|---:|---|---:|---:|---:|---|"
        stored_rows
        echo
        echo "Machine: $(machine_description)."
        echo
        echo "Versions: $(version_description)$(walrus_description)."
    } >"$results_dir/page.new"
    mv "$results_dir/page.new" "$page"
    cat "$page"
}
