# shellcheck shell=bash
# bench extract and frames: one relation of about a hundredth of the data out of a set, beside a restore of all of it;
# and what the size of frames costs and gives. Needs measure.sh, benchdata.sh and peers.sh (run_windlass_restore, out, fresh).
# Never does: write into the databases it reads.
set -euo pipefail

# --- extract: the relation whose share is nearest to 1 % ---

# The table with all that belongs to it, or the single index, that is nearest to a hundredth: name and bytes.
nearest_relation() {
    cluster_psql "$serving_dir" postgres --field-separator ' ' --command "
        WITH r AS (SELECT format('%s.%I.%I', current_database(), nspname, relname) AS name,
            CASE relkind WHEN 'r' THEN pg_total_relation_size(c.oid) ELSE pg_relation_size(c.oid) END AS bytes
            FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
            WHERE relkind IN ('r', 'i') AND nspname = 'public')
        SELECT name, bytes FROM r ORDER BY abs(bytes - $1 / 100) LIMIT 1"
}

run_windlass_extract() {
    fresh "$(out extracted)"
    timed "$windlass" extract "$(out windlass)/set.windlass" --relation "$relation" --into "$(out extracted)/files" --json
    fetched_bytes=$(json .bytes_fetched)
}

bench_extract() {
    local total bytes set_bytes
    server_dir "$bench_dir/out"
    need_tpch_cluster
    serve "tpch-$scale"
    total=$(cluster_bytes "$serving_dir/data")
    read -r relation bytes < <(nearest_relation "$total")
    codec=zstd:1
    run_windlass
    stop_serving
    set_bytes=$(stat --format %s "$(out windlass)/set.windlass")
    contest extract run_windlass_restore run_windlass_extract
    as_server rm -rf "$bench_dir/out"
    printf 'extract: %s, %.2f %% of %.0f MB\n' "$relation" "$(quotient "$bytes" "$((total / 100))" 4)" \
        "$(quotient "$total" 1000000 6)"
    printf 'extract: %s s, restore %s s, share %s (asked for 1 %%: at most 0.10)\n' \
        "$(median_of extract windlass_extract)" "$(median_of extract windlass_restore)" \
        "$(quotient "$(median_of extract windlass_extract)" "$(median_of extract windlass_restore)" 3)"
    printf 'extract: read %.2f %% of the set (asked for 1 %%: at most 3)\n' \
        "$(quotient "$fetched_bytes" "$((set_bytes / 100))" 4)"
}

# --- frames: compression, restore and random reads by the size of a frame ---

frame_sizes_kib=(16 32 64 128 256 512)

# random_reads: p50 and p99 of random 8 KiB reads with an empty frame cache, as the example prints them.
random_reads() {
    as_server "$target_dir/release/examples/random_read" "$(out windlass)/set.windlass" 5000 |
        sed -n 's/^cold: p50 \([^,]*\), .*p99 \([^,]*\), .*/\1 | \2/p'
}

# frame_row KIB: one line of the table; the quicker of two backups and of two restores.
frame_row() {
    local kib=$1 round stored backup='' restore=''
    for round in 1 2; do
        fresh "$(out windlass)"
        timed "$windlass" backup "$uri" --to "$(out windlass)/set.windlass" --compress zstd:1 --frame-size "${kib}KiB" --json
        if [[ -z $backup ]] || at_most "$last_seconds" "$backup"; then backup=$last_seconds; fi
        stored=$(quotient "$(json .bytes_written)" "$(json .bytes_read)" 3)
        raw_bytes=$(json .bytes_read)
    done
    for round in 1 2; do
        run_windlass_restore
        if [[ -z $restore ]] || at_most "$last_seconds" "$restore"; then restore=$last_seconds; fi
    done
    note "frames of $kib KiB: stored $stored, backup $backup s, restore $restore s"
    printf '| %s | %s | %.0f | %.0f | %s |\n' "$kib" "$stored" "$(quotient "$raw_bytes" "$backup" 0)e-6" \
        "$(quotient "$raw_bytes" "$restore" 0)e-6" "$(random_reads)"
}

bench_frames() {
    local kib
    cargo_build --release --package windlass-image --example random_read
    server_dir "$bench_dir/out"
    need_tpch_cluster
    serve "tpch-$scale"
    printf '%s\n%s\n' "| frame KiB | stored | backup MB/s | restore MB/s | random read p50 | p99 |" "|---:|---:|---:|---:|---:|---:|"
    for kib in "${frame_sizes_kib[@]}"; do frame_row "$kib"; done
    stop_serving
    as_server rm -rf "$bench_dir/out"
    machine_description && echo
}
