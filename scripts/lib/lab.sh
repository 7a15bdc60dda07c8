# shellcheck shell=bash
# What is measured on emulated storage: it needs the binary, memory for files, and nothing else of this machine.
# Never does: judge by a number that it did not measure. Needs common.sh, install.sh and measure.sh.
set -euo pipefail

prepare_lab() {
    need jq:jq
    lab_dir=$(mktemp -d "${TMPDIR:-/tmp}/windlass-lab.XXXXXX")
    bench_dir=$lab_dir
    windlass=${WINDLASS_BINARY:-}
    [[ -z $windlass ]] || return 0
    need_rust
    note "building windlass"
    cargo_build --release --package windlass
    windlass="$target_dir/release/windlass"
}

# Backups and restores on emulated storage, beside what the plan says; fails where that is further off than it may be.
bench_plan() {
    local report="$repo_root/docs/bench-plan.md" status=0
    "$windlass" lab rehearse --at-most 0.10,0.25 >"$lab_dir/table" || status=$?
    grep -q '^|' "$lab_dir/table" || die "no run was made"
    {
        echo "# The plan compared with real runs"
        echo
        echo "\`scripts/bench plan\` wrote this page. It makes backups and restores of 96 MiB on emulated storage and compares each with what the plan"
        echo "predicts for the same buffers. crates/windlass-lab/src/rehearsal/setups.rs defines the set-ups. The goal: a median error of at most 10 %, and"
        echo "no error above 25 %. Where the plan names the limit of the machine, or the buffers, the verdict may name the storage."
        echo
        cat "$lab_dir/table"
        echo
        echo "Machine: $(machine_description). Windlass of commit $(build_name)."
    } >"$report.new"
    mv "$report.new" "$report"
    rm -rf "$lab_dir"
    cat "$report"
    return "$status"
}

# Name, DATABASE's options of `tune`: each with a bottleneck of its own.
tune_setups() {
    echo 'slow device|--to nul --emulate source=rate:400MB/s --emulate target=rate:30MB/s'
    echo 'slow volume|--to nul --emulate source=rate:60MB/s --emulate target=rate:400MB/s'
    echo 'streams to an object store|--to nul --to nul --emulate source=gp3:1TB --emulate target=s3:2x15MB/s'
    echo 'late volume|--to nul --emulate source=rate:400MB/s,latency=40ms --emulate target=rate:100MB/s'
    echo 'late device|--to nul --emulate source=rate:120MB/s --emulate target=rate:400MB/s,latency=60ms'
    echo 'spinning disk|--to nul --emulate source=hdd:120MB/s --emulate target=rate:40MB/s'
}

# A database of pages that compress to about half, as SQLite writes them.
tune_database() {
    sqlite3 "$lab_dir/lab.db" >/dev/null <<'SQL'
PRAGMA page_size = 8192; PRAGMA journal_mode = WAL;
CREATE TABLE line (id INTEGER PRIMARY KEY, noise BLOB, words TEXT);
WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 90000)
INSERT INTO line SELECT i, randomblob(420), printf('order line %d of warehouse %d, delivered in stock, quantity %d; ', i,
    i % 40, i % 7) || 'furiously regular deposits sleep among the ironic accounts; carefully final packages haggle' ||
    ' quickly above the pending requests; slyly express theodolites wake against the blithely bold pinto beans' ||
    printf(' no %d; customer %d of district %d', i * 7919 % 100003, i % 3000, i % 10) FROM n;
PRAGMA wal_checkpoint(TRUNCATE);
SQL
}

# The words that make a backup run as the best setting of a search does.
tune_words() {
    jq -r '.best.setting | "--compress \(.codec) --buffers \(.buffers) --transfer-size \(.transfer_bytes / 1024)KiB" +
        " --readers \(.readers) --threads \(.threads)"' "$1"
}

# Whole backups with the setting found and with the best of the sweep, in turns; the median rates, in MB/s.
tune_contest() {
    local round which words
    for ((round = 0; round < pairs + 2; round++)); do
        for which in tuned swept; do
            words=$(tune_words "$lab_dir/$which")
            # shellcheck disable=SC2086 # options are words
            "$windlass" --json backup "$lab_dir/lab.db" --no-prediction $1 $words |
                jq '.bytes_read / .data_seconds / 1e6' >>"$lab_dir/$which.rates"
        done
    done
    for which in tuned swept; do
        sort -n "$lab_dir/$which.rates" | awk '{ rate[NR] = $1 } END { printf "%.1f ", rate[int((NR + 1) / 2)] }'
        rm "$lab_dir/$which.rates"
    done
}

# A row of the table: NAME, MB/s of the setting found, MB/s of the best of the sweep.
tune_row() {
    jq -r --arg name "$1" --argjson found "$2" --argjson best "$3" --slurpfile swept "$lab_dir/swept" '
        def words: "\(.codec), \(.buffers) x \(.transfer_bytes / 1024) KiB, \(.readers) readers";
        def tenth: . * 10 | round / 10;
        $swept[0] as $all
        | [$name, .best.limit, (.best.setting | words), $found, ($all.best.setting | words), $best, ($found / $best * 100 | tenth),
           (.trials | length), ($all.trials | length), (.seconds | tenth), ($all.seconds | tenth),
           (.seconds / $all.seconds * 100 | tenth), (.bytes / $all.bytes * 100 | tenth)]
        | "| " + (map(tostring) | join(" | ")) + " |"' "$lab_dir/tuned"
}

# Tuning on emulated storage, beside a sweep of every setting with trials of the same size.
bench_tune() {
    local report="$repo_root/docs/bench-tune.md" name options trial found best
    need sqlite3:sqlite3
    tune_database
    while IFS='|' read -r name options; do
        # shellcheck disable=SC2086 # options are words
        "$windlass" --json tune "$lab_dir/lab.db" $options >"$lab_dir/tuned"
        trial=$(jq .trial_bytes "$lab_dir/tuned")
        # shellcheck disable=SC2086 # options are words
        "$windlass" --json tune "$lab_dir/lab.db" $options --exhaustive --trial-bytes "$trial" >"$lab_dir/swept"
        read -r found best <<<"$(tune_contest "$options")"
        tune_row "$name" "$found" "$best" | tee -a "$lab_dir/table"
    done < <(tune_setups)
    {
        echo "# Tuning compared with a sweep of all settings"
        echo
        echo "\`scripts/bench tune\` wrote this page. It runs \`windlass tune\` on emulated storage, and then \`--exhaustive\` with trials of the same size."
        echo "After that it makes whole backups with the setting that tune found and with the best of the sweep, in turns; MB/s are the medians of these."
        echo "The goal: within 5 % of the best, for at most a fifth of the cost."
        echo
        echo "| set-up | bound by | found | MB/s | best of the sweep | MB/s | % of best | trials | of | seconds | of | % of seconds | % of bytes |"
        echo "|---|---|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        cat "$lab_dir/table"
        echo
        echo "Machine: $(machine_description). Windlass of commit $(build_name)."
    } >"$report.new"
    mv "$report.new" "$report"
    rm -rf "$lab_dir"
}
