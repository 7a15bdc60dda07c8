# shellcheck shell=bash
# bench chains, part thirty: what a chain of 30 sets over a database of many terabytes costs to look at, to take a small file from, and to read
# a page of. Needs bench_chains.sh, opening.sh (mount_by, unmount_set, as_server_in) and measure.sh.
#
# No database of that size is here. The example long_chain writes the sets as a backup would: a full set of zeros, and 29 incremental ones, each
# with one page of a hundred. What is left of them is their index, and that is what these commands find their way by.
set -euo pipefail

thirty_sets=30
# The memory that is stated: 64 MiB, and as much again for decoded frames where a command has these.
thirty_mib=64

run_windlass_thirty_place() {
    timed "$windlass" info "$(out thirty)"
}

run_windlass_thirty_set() {
    timed "$windlass" info "$(out thirty)" --set latest
}

# The label is a small file of which each set has a page.
run_windlass_thirty_extract() {
    fresh "$(out extracted)"
    timed "$windlass" extract "$(out thirty)" label --set latest --into "$(out extracted)/files" --json
}

# From the start of the mount to the first page. The page is in the oldest incremental set, so every newer one is asked.
run_windlass_thirty_mount() {
    local start end found
    "$settle"
    start=$(micros_now)
    mount_by "$windlass" mount "$(out thirty)" "$(out mounted)" --set latest --foreground --cache 64MiB
    found=$(as_server_in "$mount_at" dd if="$thirty_file" bs=8192 skip=$((thirty_offset / 8192)) count=1 status=none |
        od --address-radix=n --output-duplicates --format=u1 --width=1 | sort --unique | tr --delete ' ')
    end=$(micros_now)
    [[ $found == "$thirty_fill" ]] || die "a wrong page: $found instead of $thirty_fill"
    last_seconds=$(awk -v us=$((end - start)) 'BEGIN { printf "%.3f", us / 1e6 }')
    last_peak_kib=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$(pgrep -n -f "^$windlass mount $(out thirty) $mount_at")/status")
    unmount_set
}

# make_thirty GIGABYTES: the chain, and a page that the oldest incremental set has: its file, its offset, and the byte that it consists of.
make_thirty() {
    local free
    # Thirty sets take about a thousandth of the database.
    free=$(df --output=avail --block-size=1M "$bench_dir" | tail -n 1)
    ((free > $1 * 11 / 10 + 2000)) || die "a chain over $1 GB needs $(($1 * 11 / 10 + 2000)) MB of free disk space"
    fresh "$(out thirty)"
    note "making $thirty_sets sets over $1 GB"
    as_server "$long_chain" "$(out thirty)" "$1" "$thirty_sets" >"$bench_dir/last.out"
    read -r thirty_file thirty_offset thirty_fill <"$bench_dir/last.out"
}

# thirty_figures GIGABYTES CONTENDER WHAT MIB
thirty_figures() {
    figure "$3, $thirty_sets sets over $1 GB: seconds" "$(median_of "chain-thirty-$1" "$2")" 1
    figure "the same: peak memory in MiB" "$(quotient "$(median_of "chain-thirty-$1" "$2" 3)" 1024 0)" "$4"
}

chains_thirty() {
    local size
    long_chain=${WINDLASS_LONG_CHAIN:-$target_dir/release/examples/long_chain}
    [[ -n ${WINDLASS_LONG_CHAIN:-} ]] || cargo_build --release --package windlass-testkit --example long_chain
    for size in $((gigabytes / 10)) "$gigabytes"; do
        make_thirty "$size"
        contest "chain-thirty-$size" run_windlass_thirty_place run_windlass_thirty_set run_windlass_thirty_extract run_windlass_thirty_mount
        thirty_figures "$size" windlass_thirty_place "\`info\` of the directory" "$thirty_mib"
        thirty_figures "$size" windlass_thirty_set "\`info\` of the newest set" "$thirty_mib"
        thirty_figures "$size" windlass_thirty_extract "\`extract\` of a small file" $((2 * thirty_mib))
        thirty_figures "$size" windlass_thirty_mount "\`mount\` and its first page" $((2 * thirty_mib))
        as_server rm -rf "$bench_dir/out"
        server_dir "$bench_dir/out"
    done
}
