# shellcheck shell=bash
# bench open and mount: from a set to the first answered query, by the size of the set; and what reading through a mount
# costs beside the pipeline's own decoding. Needs measure.sh, benchdata.sh and peers.sh (run_windlass, out, fresh).
# Never does: write into the databases it reads.
set -euo pipefail

# --- open: the time follows the log to replay, not the size ---

gib_per_pgbench_scale=67

run_windlass_open() {
    timed "$windlass" open "$(out windlass)/set.windlass" -- "$PG_BINDIR/psql" --no-psqlrc --quiet --tuples-only --no-align \
        --command 'SELECT count(*), max(aid) FROM (SELECT aid FROM pgbench_accounts WHERE aid = 77777) found'
    [[ $(<"$bench_dir/last.out") == '1|77777' ]] || die "a wrong answer: $(<"$bench_dir/last.out")"
}

# open_row GIB: a set of a cluster of that size, opened again and again.
open_row() {
    local raw stored
    pgbench_scale=$(($1 * gib_per_pgbench_scale))
    need_pgbench_cluster
    serve "pgbench-$pgbench_scale"
    codec=zstd:1
    run_windlass
    raw=$(json .bytes_read) stored=$(json .bytes_written)
    stop_serving
    contest "open-$1" run_windlass_open
    printf '| %s | %.2f | %s | %s |\n' "$(quotient "$raw" 1000000000 2)" "$(quotient "$stored" 1000000000 3)" \
        "$(median_of "open-$1" windlass_open)" \
        "$(cut -f 2 "$results_dir/open-$1.tsv" | sort -g | sed -n '1p;$p' | paste -s -d '-')"
}

bench_open() {
    local gib
    server_dir "$bench_dir/out"
    printf '%s\n%s\n' "| cluster GB | set GB | open to answer s | quickest-slowest |" "|---:|---:|---:|---:|"
    for gib in ${sizes//,/ }; do open_row "$gib"; done
    as_server rm -rf "$bench_dir/out"
    machine_description && echo
}

# --- mount: sequential, random and cached reads, and memory ---

mount_pid=

# mount_by COMMAND ...: it mounts on mount_at, and serves until that is unmounted.
mount_by() {
    mount_at="$(out mounted)"
    fresh "$mount_at"
    as_server "$@" >/dev/null &
    mount_pid=$!
    until mountpoint --quiet "$mount_at" || as_server mountpoint --quiet "$mount_at"; do
        kill -0 "$mount_pid" 2>/dev/null || die "the mount ended by itself"
        sleep 0.05
    done
}

# mount_set OPTION ...
mount_set() {
    mount_by "$windlass" mount "$(out windlass)/set.windlass" "$(out mounted)" --foreground --cache 64MiB "$@"
}

unmount_set() {
    [[ -n $mount_pid ]] || return 0
    as_server fusermount3 -u "$mount_at"
    wait "$mount_pid"
    mount_pid=
}

# The mount's own peak memory in KiB; runuser stands before it.
mount_peak_kib() {
    local pid
    pid=$(pgrep -n -f "^$windlass mount $(out windlass)/set.windlass $mount_at")
    sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status"
}

# as_server_in DIR COMMAND ...: who has not mounted may not even look into the mount.
as_server_in() {
    as_server env --chdir="$1" "${@:2}"
}

# The files that hold nearly all bytes, largest first.
large_files() {
    as_server_in "$mount_at" find base -type f -size +8M -printf '%s %p\n' | sort -rn | sed -n '1,40s/^[0-9]* //p'
}

run_windlass_verify() {
    timed "$windlass" verify "$(out windlass)/set.windlass" --json
}

# The files named on standard input, which nobody has read before: as many readers as cores, as the pipeline has decompressors.
read_all() {
    timed sh -c "cd '$mount_at' && xargs -n 1 -P '$(nproc)' cat >/dev/null"
}

sequential_peak_kib=0

run_mount_sequential() {
    local peak
    mount_set "$@"
    large_files >"$bench_dir/large"
    sequential_bytes=$(as_server_in "$mount_at" xargs stat --format %s <"$bench_dir/large" | awk '{ n += $1 } END { printf "%.0f", n }')
    read_all <"$bench_dir/large"
    peak=$(mount_peak_kib)
    ((peak <= sequential_peak_kib)) || sequential_peak_kib=$peak
    unmount_set
}

run_mount_direct() {
    run_mount_sequential --direct-io
}

# The kernel's part alone: files of zeros, as many bytes together as the set's large files.
run_nothing() {
    local readers
    readers=$(nproc)
    mount_by "$nothing_to_decode" "$(out mounted)" "$readers" $((sequential_bytes / readers)) "$@"
    read_all < <(seq "$readers")
    unmount_set
}

run_nothing_direct() {
    run_nothing direct
}

# rate_of CONTENDER BYTES: in MB/s, of the last contest of mounts.
rate_of() {
    quotient "$2" "$(median_of mount "$1")e6" 0
}

# mount_line CONTENDER NOTHING: its rate, its share of the pipeline's decoding, and what is left of that when the kernel's part is
# added: the time of decoding and the time of carrying, one after the other on the same cores.
mount_line() {
    local carried decoded mounted
    carried=$(rate_of "$2" "$sequential_bytes")
    decoded=$(rate_of windlass_verify "$raw_bytes")
    mounted=$(rate_of "$1" "$sequential_bytes")
    printf '%s: %s MB/s by a reader a core, verify decodes %s MB/s, share %s (asked for: at least 0.7);' \
        "$1" "$mounted" "$decoded" "$(quotient "$mounted" "$decoded")"
    printf ' the kernel alone carries %s MB/s, with decoding that makes %s at most\n' \
        "$carried" "$(quotient "$carried" $((carried + decoded)))"
}

# random_in DIR COUNT: sets random_us, the 50th percentile of so many 8 KiB reads anywhere in the largest files there, one at a time.
random_in() {
    as_server_in "$1" fio --name=random --readonly --rw=randread --bs=8k --ioengine=psync --randseed=1 \
        --number_ios="$2" --invalidate=0 --file_service_type=random --output-format=json \
        --filename="$(head -n 8 "$bench_dir/large" | paste -s -d :)" >"$bench_dir/last.out"
    random_us=$(json '.jobs[0].read.clat_ns.percentile."50.000000" / 1000')
}

random_through_mount() {
    mount_set
    random_in "$mount_at" 20000
    unmount_set
}

# frame_us NAME: the same without a mount, each from a frame of that set that is not in the cache.
frame_us() {
    as_server "$random_read" "$(out "$1")/set.windlass" 5000 | sed -n 's/^cold: p50 \([0-9.]*\)µs.*/\1/p'
}

# random_line: both in turns, so that a slow minute of the machine meets both.
random_line() {
    local round frame file="$results_dir/mount-random.tsv"
    : >"$file"
    for ((round = 1; round <= pairs; round++)); do
        frame=$(frame_us windlass)
        random_through_mount
        note "random, round $round of $pairs: frame $frame us, mount $random_us us"
        printf '%s\t%s\t%s\n' "$frame" "$random_us" "$(quotient "$random_us" "$frame" 3)" >>"$file"
    done
    printf 'random: p50 %s us of 8 KiB, decoding a frame %s us, ratio %s (asked for: at most 1.5)\n' \
        "$(cut -f 2 "$file" | median)" "$(cut -f 1 "$file" | median)" "$(cut -f 3 "$file" | median)"
}

# The same cluster with its pages as they are.
run_windlass_plain() {
    fresh "$(out plain)"
    timed "$windlass" backup "$uri" --to "$(out plain)/set.windlass" --compress "$codec" --pages off --json
}

# apart_line: random reads of the set, whose pages are taken apart, and of a plain one.
apart_line() {
    local round apart plain file="$results_dir/mount-apart.tsv"
    run_windlass_plain
    : >"$file"
    for ((round = 1; round <= pairs; round++)); do
        apart=$(frame_us windlass)
        plain=$(frame_us plain)
        note "apart, round $round of $pairs: pages apart $apart us, as they are $plain us"
        printf '%s\t%s\t%s\n' "$apart" "$plain" "$(quotient "$apart" "$plain" 3)" >>"$file"
    done
    printf 'apart: p50 %s us of 8 KiB from pages that are taken apart, %s us from plain ones, ratio %s (asked for: at most 1.3)\n' \
        "$(cut -f 1 "$file" | median)" "$(cut -f 2 "$file" | median)" "$(cut -f 3 "$file" | median)"
}

# cold_line: random reads of a mount that nobody has read yet, and of the source's own files, neither in any cache.
cold_line() {
    local round mounted file="$results_dir/mount-cold.tsv"
    if ! can_be_root; then
        note "cold reads are left out: dropping the page cache needs root"
        return
    fi
    : >"$file"
    for ((round = 1; round <= pairs; round++)); do
        mount_set
        drop_page_cache
        random_in "$mount_at" 2000
        unmount_set
        mounted=$random_us
        drop_page_cache
        random_in "$serving_dir/data" 2000
        note "cold, round $round of $pairs: mount $mounted us, plain file $random_us us"
        printf '%s\t%s\t%s\n' "$mounted" "$random_us" "$(quotient "$mounted" "$random_us" 3)" >>"$file"
    done
    printf 'cold: p50 %s us of 8 KiB through the mount, %s us from the plain file, ratio %s\n' \
        "$(cut -f 1 "$file" | median)" "$(cut -f 2 "$file" | median)" "$(cut -f 3 "$file" | median)"
}

# The rate in MB/s at which a file is read a second time.
cached_rate() {
    as_server_in "$1" sh -c "cat '$2' >/dev/null; cat '$2' >/dev/null; dd if='$2' of=/dev/null bs=1M" 2>&1 |
        sed -n 's/^\([0-9]*\) bytes.* copied, \([0-9.e-]*\) s.*/\1 \2/p' | awk '{ printf "%.0f", $1 / $2 / 1e6 }'
}

bench_mount() {
    local raw_bytes file
    random_read=${WINDLASS_RANDOM_READ:-$target_dir/release/examples/random_read}
    nothing_to_decode=${WINDLASS_NOTHING_TO_DECODE:-$target_dir/release/examples/nothing_to_decode}
    [[ -n ${WINDLASS_RANDOM_READ:-} && -n ${WINDLASS_NOTHING_TO_DECODE:-} ]] ||
        cargo_build --release \
            --package windlass-image --example random_read --package windlass-mount --example nothing_to_decode
    need fio:fio
    server_dir "$bench_dir/out"
    need_tpch_cluster
    serve "tpch-$scale"
    codec=zstd:1
    run_windlass
    raw_bytes=$(json .bytes_read)
    contest mount run_windlass_verify run_mount_sequential run_nothing run_mount_direct run_nothing_direct
    mount_line mount_sequential nothing
    mount_line mount_direct nothing_direct
    printf 'memory: peak %s MiB after that (asked for: cache of 64 MiB + 64)\n' "$((sequential_peak_kib / 1024))"
    random_line
    apart_line
    cold_line
    mount_set
    file=$(head -n 1 "$bench_dir/large")
    printf 'cached: %s MB/s through the mount, %s MB/s of the same file in its file system\n' \
        "$(cached_rate "$mount_at" "$file")" "$(cached_rate "$serving_dir/data" "$file")"
    unmount_set
    stop_serving
    as_server rm -rf "$bench_dir/out"
    machine_description && echo
}
