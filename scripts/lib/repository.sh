# shellcheck shell=bash
# bench repository: what parity and encryption cost a backup, compared with the same backup without them, and with one that writes nothing.
# Never does: round in anybody's favour, or name the machine. Needs measure.sh, benchdata.sh, peers.sh and buckets.sh, which has the other parts.
#
# All devices are directories of one file system, so what parity writes besides takes its share of that disk, too. With a disk for each
# device it would not; the rows "writes nothing" say how far the processor's time alone would go.
set -euo pipefail

# Only its public half is needed to write a set that nobody here can read.
bench_recipient=age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj
repository_codecs=(zstd:1 none)
repository_parts=(cost listing query)

# back_up_to NAME DEVICES [OPTION ...]: to so many directories of its own.
back_up_to() {
    local name=$1 count=$2 device devices=()
    shift 2
    for ((device = 1; device <= count; device++)); do
        fresh "$(out "$name")/$device"
        devices+=(--to "$(out "$name")/$device")
    done
    timed "$windlass" backup "$uri" "${devices[@]}" --compress "$codec" --json "$@"
}

run_plain4() { back_up_to plain4 4; }
# The same once more: how far two equal runs of a round differ.
run_plain4_again() { back_up_to plain4 4; }
run_parity1_of4() { back_up_to parity1_of4 4 --parity 1; }
run_parity2_of4() { back_up_to parity2_of4 4 --parity 2; }
run_parity1_more() { back_up_to parity1_more 5 --parity 1; }
run_parity2_more() { back_up_to parity2_more 6 --parity 2; }
run_encrypted4() { back_up_to encrypted4 4 --encrypt "age:$bench_recipient"; }
run_nul4() { timed "$windlass" backup "$uri" --to nul,nul,nul,nul --compress "$codec" --json; }

repository_runs=(plain4 parity1_of4 parity1_more plain4_again parity2_of4 parity2_more encrypted4 nul4)

# round_ratios NAME CONTENDER BASE: one line a round.
round_ratios() {
    awk -F '\t' -v who="$2" -v base="$3" '$1 == who { a[++n] = $2 } $1 == base { b[++m] = $2 }
        END { for (round = 1; round <= n; round++) print a[round] / b[round] }' "$results_dir/$1.tsv"
}

round_noise() {
    round_ratios "$1" plain4_again plain4 | awk '{ d = $1 - 1; print 100 * (d < 0 ? -d : d) }' | median
}

stored_share() {
    quotient "$(stored_of "$1" "$2")" "$(stored_of "$1" plain4)"
}

# repository_row NAME CONTENDER TITLE GOAL
repository_row() {
    local ratio met=no goal=$4
    ratio=$(round_ratios "$1" "$2" plain4 | median)
    if [[ $goal == - ]]; then met=-; else at_most "$ratio" "$goal" && met=yes; fi
    printf '| %s | %.2f | %.3f | %s | %s | %.3f | %s |\n' "$3" "$(median_of "$1" "$2")" "$ratio" "$goal" "$met" \
        "$(round_ratios "$1" "$2" nul4 | median)" "$(stored_share "$1" "$2")"
}

# repository_rows CODEC GOAL-OF-ENCRYPTION
repository_rows() {
    local name="repository-${1/:/-}"
    [[ -e $results_dir/$name.tsv ]] || return 0
    echo
    echo "With \`--compress $1\`. The backup that writes nothing took $(printf '%.2f' "$(median_of "$name" nul4)") s." \
        "Two equal runs of a round differ by $(printf '%.1f' "$(round_noise "$name")") %, in the median."
    echo
    echo "| backup | s | to that without | goal: at most | met | to one that writes nothing | stored, to that without |"
    echo "|---|---:|---:|---:|---|---:|---:|"
    repository_row "$name" plain4 "four stripes" -
    repository_row "$name" parity1_of4 "the same four devices, one with parity" 1.10
    repository_row "$name" parity2_of4 "the same four devices, two with parity" 1.15
    repository_row "$name" parity1_more "four stripes and one device with parity" 1.10
    repository_row "$name" parity2_more "four stripes and two devices with parity" 1.15
    repository_row "$name" encrypted4 "four stripes, encrypted" "$2"
}

write_costs() {
    [[ -e $results_dir/repository-zstd-1.tsv ]] || return 0
    echo
    echo "## What parity and encryption cost"
    echo
    echo "Backups of TPC-H at scale $scale, which PostgreSQL serves, with a warm cache. All devices lie on one disk. Commit $(<"$results_dir/repository-zstd-1.build")."
    repository_rows zstd:1 1.08
    repository_rows none 1.3
}

write_repository_page() {
    local page="$repo_root/docs/bench-repository.md"
    {
        echo "# Repositories: parity, encryption, many sets and buckets"
        echo
        echo "\`scripts/bench repository\` wrote this page; \`--only PART\` measures one part (${repository_parts[*]}). The runs of a part took turns."
        echo "Seconds are medians of $pairs rounds, of whole processes; ratios are medians of those of each round."
        write_costs
        write_bucket_parts
        echo
        echo "Machine: $(machine_description)."
    } >"$results_dir/repository.page"
    mv "$results_dir/repository.page" "$page"
    cat "$page"
}

repository_cost() {
    local name stored
    need_tpch_cluster
    serve "tpch-$scale"
    for codec in "${repository_codecs[@]}"; do
        contest "repository-${codec/:/-}" "${repository_runs[@]/#/run_}"
        stored=()
        for name in plain4 parity1_of4 parity2_of4 parity1_more parity2_more encrypted4; do stored+=("$name=$(out "$name")"); done
        record_stored "repository-${codec/:/-}" "${stored[@]}"
        as_server rm -rf "$bench_dir/out"
        server_dir "$bench_dir/out"
    done
    stop_serving
}

bench_repository() {
    local part
    [[ -z $only || " ${repository_parts[*]} " == *" $only "* ]] || die "repository has no part $only; its parts are ${repository_parts[*]}"
    for part in "${repository_parts[@]}"; do
        [[ -z $only || $only == "$part" ]] || continue
        server_dir "$bench_dir/out"
        "repository_$part"
        as_server rm -rf "$bench_dir/out"
    done
    write_repository_page
}
