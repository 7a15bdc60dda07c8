# shellcheck shell=bash
# bench events: what recording every wait and transfer costs a run. Needs measure.sh, benchdata.sh and peers.sh.
# Never does: write into the databases it reads.
set -euo pipefail

events_file() {
    echo "$bench_dir/out/run.events"
}

# What is not cached is read past the cache, and would never be: the device would be measured, and its noise.
warm_source() {
    as_server find "$serving_dir/data/base" -type f -exec cat {} + >/dev/null
}

run_plain() {
    warm_source
    timed "$windlass" backup "$uri" --to nul --compress "$codec" --json
}

run_recorded() {
    as_server rm -f "$(events_file)"
    warm_source
    timed "$windlass" backup "$uri" --to nul --compress "$codec" --json --events "$(events_file)"
}

# events_row CODEC: medians of both, what recording added, and what it kept.
events_row() {
    local counts
    codec=$1
    contest "events-${codec/:/-}" run_plain run_recorded
    counts=$(as_server tail -n 1 "$(events_file)" | jq --raw-output '"\(.written) events, \(.thinned) thinned, \(.lost) lost"')
    printf 'events, %s: %s s without, %s s with: %s %% more (asked for: under 2); %s, %.1f MB\n' "$codec" \
        "$(median_of "events-${codec/:/-}" plain)" "$(median_of "events-${codec/:/-}" recorded)" \
        "$(awk -v a="$(median_of "events-${codec/:/-}" recorded)" -v b="$(median_of "events-${codec/:/-}" plain)" \
            'BEGIN { printf "%.2f", (a / b - 1) * 100 }')" \
        "$counts" "$(quotient "$(stat --format %s "$(events_file)")" 1000000 2)"
}

# Without compression there are the most events a second: the worst case.
bench_events() {
    server_dir "$bench_dir/out"
    need_tpch_cluster
    serve "tpch-$scale"
    events_row none
    events_row zstd:1
    stop_serving
    as_server rm -rf "$bench_dir/out"
}
