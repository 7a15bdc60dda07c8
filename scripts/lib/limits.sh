# shellcheck shell=bash
# bench cold, zstd and memory: Windlass against the limits of the machine instead of against another program.
# Never does: write into the databases it reads. Dropping the page cache needs root. Needs measure.sh and benchdata.sh.
set -euo pipefail

# --- cold: uncompressed to nul with the page cache dropped, against fio on the same files ---

# The largest files of the cluster, as fio takes them. They hold nearly all of its bytes.
fio_files() {
    (cd "$serving_dir/data/base" && find . -type f -size +16M | sort | tr '\n' ':' | sed 's/:$//')
}

# fio_rate DEPTH: bytes a second of one sequential pass, past the cache. Terse output, field 7: bandwidth in KiB/s.
fio_rate() {
    drop_page_cache
    (cd "$serving_dir/data/base" && fio --name=limit --readonly --rw=read --bs=1M --direct=1 --ioengine="$fio_engine" \
        --iodepth="$1" --file_service_type=sequential --filename="$(fio_files)" --minimal) |
        awk -F ';' '{ printf "%.0f", $7 * 1024 }'
}

choose_fio_engine() {
    fio_engine=io_uring
    (cd "$bench_dir" && fio --name=try --rw=read --size=1M --filename=fio-try --ioengine=io_uring --minimal) \
        >/dev/null 2>&1 || fio_engine=libaio
    rm -f "$bench_dir/fio-try"
}

choose_fio_depth() {
    local depth rate best=0
    for depth in 1 2 4 8 16 32; do
        rate=$(fio_rate "$depth")
        note "fio, depth $depth: $((rate / 1000000)) MB/s"
        if ((rate > best)); then best=$rate fio_depth=$depth; fi
    done
}

# windlass_cold_rate [OPTION ...]
windlass_cold_rate() {
    drop_page_cache
    timed "$windlass" backup "$uri" --to nul --compress none --json "$@"
    json '.bytes_read / .seconds | floor'
}

# resident_pages: bytes of the data directory in the page cache, a line a file, in a stable order.
resident_pages() {
    (cd "$serving_dir/data/base" && find . -type f -size +0 -print0 | sort -z |
        xargs -0 fincore --bytes --noheadings --raw --output RES,FILE)
}

# What the cache held stays, what it did not hold is not brought in: a third of the files is read in before.
report_residency() {
    drop_page_cache
    (cd "$serving_dir/data/base" && find . -type f -size +1M | sort | awk 'NR % 3 == 0' | tr '\n' '\0' |
        xargs -0 cat >/dev/null)
    resident_pages >"$bench_dir/resident.before"
    timed "$windlass" backup "$uri" --to nul --compress none --json
    resident_pages >"$bench_dir/resident.after"
    awk 'NR == FNR { before[$2] = $1; sum += $1; next }
         { after += $1; d = $1 - before[$2]; if (d > 0) gained += d; else lost -= d }
         END { printf "page cache: %.0f MB before, %.0f MB after; lost %.1f MB, gained %.1f MB\n",
               sum / 1e6, after / 1e6, lost / 1e6, gained / 1e6 }' "$bench_dir/resident.before" "$bench_dir/resident.after"
}

bench_cold() {
    local round fio ours deep buffers
    need fio:fio fincore:util-linux-extra
    can_be_root || die "dropping the page cache needs root"
    need_tpch_cluster
    serve "tpch-$scale"
    choose_fio_engine
    choose_fio_depth
    : >"$results_dir/cold.tsv"
    # A read in flight takes a buffer: as many as fio has, and those that are looked at meanwhile.
    buffers=$((fio_depth + 8))
    for ((round = 1; round <= pairs; round++)); do
        fio=$(fio_rate "$fio_depth")
        ours=$(windlass_cold_rate)
        deep=$(windlass_cold_rate --buffers "$buffers")
        note "cold, round $round of $pairs: fio $((fio / 1000000)) MB/s, windlass $((ours / 1000000)) MB/s," \
            "with $buffers buffers $((deep / 1000000)) MB/s"
        printf 'fio\t%s\ndefault\t%s\nwindlass\t%s\n' "$fio" "$ours" "$deep" >>"$results_dir/cold.tsv"
    done
    printf 'cold: windlass with its default of 7 buffers %.0f MB/s\n' "$(quotient "$(median_of cold default)" 1000000 6)"
    report_share cold fio "with $buffers buffers; fio, $fio_engine, depth $fio_depth"
    report_residency
    stop_serving
}

# report_share NAME LIMIT TITLE: median rates, and Windlass's share of the limit. Asked for: at least 0.9.
report_share() {
    local limit ours
    limit=$(median_of "$1" "$2")
    ours=$(median_of "$1" windlass)
    printf '%s: windlass %.0f MB/s, %s %.0f MB/s, share %s (asked: at least 0.90)\n' \
        "$1" "$(quotient "$ours" 1000000 6)" "$3" "$(quotient "$limit" 1000000 6)" "$(quotient "$ours" "$limit")"
}

# --- zstd: warm, zstd:1 to nul, against nothing but zstd on every core ---

# The cluster's own files, cut into one part a core, at most 1 GiB each: zstd's benchmark keeps them in memory.
make_zstd_sample() {
    local core
    fresh "$bench_dir/sample"
    for ((core = 0; core < $(nproc); core++)); do
        find "$serving_dir/data/base" -type f -size +1M | sort | awk -v n="$(nproc)" -v k="$core" 'NR % n == k' |
            tr '\n' '\0' | { xargs -0 cat 2>/dev/null || true; } | head -c 1G >"$bench_dir/sample/$core"
    done
}

# One process a core, all at once, each compressing its part in pieces of frame_bytes: the sum is the limit. zstd's own
# threads are not used, since they split only inputs much larger than a frame.
zstd_rate() {
    local core pids=()
    for ((core = 0; core < $(nproc); core++)); do
        zstd -q -b1 -e1 -i3 -B"$frame_bytes" "$bench_dir/sample/$core" >"$bench_dir/sample/$core.rate" 2>&1 &
        pids+=($!)
    done
    wait "${pids[@]}"
    for ((core = 0; core < $(nproc); core++)); do
        grep -o '[0-9.]* MB/s' "$bench_dir/sample/$core.rate" | head -n 1
    done | awk '{ sum += $1 } END { printf "%.0f", sum * 1e6 }'
}

bench_zstd() {
    local round limit ours
    need zstd:zstd
    need_tpch_cluster
    serve "tpch-$scale"
    make_zstd_sample
    : >"$results_dir/zstd-limit.tsv"
    for ((round = 0; round <= pairs; round++)); do
        limit=$(zstd_rate)
        timed "$windlass" backup "$uri" --to nul --compress zstd:1 --json
        ours=$(json '.bytes_read / .seconds | floor')
        note "zstd, round $round of $pairs: zstd $((limit / 1000000)) MB/s, windlass $((ours / 1000000)) MB/s"
        ((round == 0)) || printf 'zstd\t%s\nwindlass\t%s\n' "$limit" "$ours" >>"$results_dir/zstd-limit.tsv"
    done
    as_server rm -rf "$bench_dir/sample"
    report_share zstd-limit zstd "zstd -b1 -B$frame_bytes on $(nproc) cores"
    stop_serving
}

# --- memory: peak against buffers x transfer size + 64 MiB ---

memory_failures=0

# memory_line WHAT: of the last run.
memory_line() {
    local allowed peak verdict=yes
    allowed=$(($(json .buffer_bytes) + 64 * 1024 * 1024))
    peak=$((last_peak_kib * 1024))
    ((peak <= allowed)) || { verdict=no && memory_failures=$((memory_failures + 1)); }
    printf '| %s | %.1f | %.1f | %s |\n' "$1" "$(quotient "$peak" 1048576 6)" "$(quotient "$allowed" 1048576 6)" "$verdict"
}

memory_of() {
    local title=$1 devices=() device
    for device in a b c d; do devices+=(--to "$(out windlass)/$device.windlass"); done
    fresh "$(out windlass)"
    timed "$windlass" backup "$uri" "${devices[@]}" --compress zstd:1 --json
    memory_line "$title, backup to four files"
    timed "$windlass" verify "$(out windlass)" --latest --json
    memory_line "$title, verify"
    fresh "$(out restored)"
    timed "$windlass" restore "$(out windlass)" --into "$(out restored)" --json
    memory_line "$title, restore"
}

bench_memory() {
    server_dir "$bench_dir/out"
    need_tpch_cluster
    need_small_tables
    echo "| run | peak MiB | allowed MiB | met |"
    echo "|---|---:|---:|---|"
    serve "tpch-$scale"
    memory_of "TPC-H at scale $scale"
    serve "small-$small_tables"
    memory_of "$small_tables small tables"
    stop_serving
    as_server rm -rf "$bench_dir/out"
    ((memory_failures == 0)) || die "$memory_failures runs took more memory than allowed"
}
