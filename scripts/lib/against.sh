# shellcheck shell=bash
# bench peers --against FILE: another build of Windlass takes part in every contest, in turns with this one.
# Never does: write a number into a page of the manual. Needs measure.sh and peers.sh.
set -euo pipefail

# The other build, if there is one: a copy, as the one that is measured.
against=
other_windlass=

prepare_against() {
    [[ -n $against ]] || return 0
    [[ -x $against ]] || die "--against $against: that is no program"
    other_windlass="$bench_dir/tools/bin/windlass-against"
    install -m 755 "$against" "$other_windlass"
    note "against $("$other_windlass" --version), $(sha256sum "$other_windlass" | cut -c 1-12)"
}

# takes_part CONTENDER: whether both builds can be this contender.
takes_part() {
    [[ -n $other_windlass && $1 == run_windlass* ]]
}

# as_other COMMAND ...: with the other build in place of this one.
as_other() {
    local windlass=$other_windlass
    "$@"
}

# against_row NAME CONTENDER: the medians of both builds, and what the first takes of the other's time and memory.
against_row() {
    local other=${2/windlass/against} ours theirs
    grep -q "^$other"$'\t' "$results_dir/$1.tsv" || return 0
    ours=$(median_of "$1" "$2")
    theirs=$(median_of "$1" "$other")
    printf '| %s | %.3f | %.3f | %s | %s | %s |\n' "$1" "$ours" "$theirs" "$(quotient "$ours" "$theirs" 3)" \
        "$(quotient "$(median_of "$1" "$2" 3)" "$(median_of "$1" "$other" 3)" 3)" "$(grep -c "^$2"$'\t' "$results_dir/$1.tsv")"
}

# print_against NAME ...: of the runs that were measured now.
print_against() {
    local name line fields
    [[ -n $other_windlass ]] || return 0
    echo
    echo "| run | this build s | other build s | ratio of time | ratio of peak memory | rounds |"
    echo "|---|---:|---:|---:|---:|---:|"
    for name in "$@"; do
        for line in "${peer_lines[@]}"; do
            IFS='|' read -r -a fields <<<"$line"
            [[ ${fields[0]} != "$name" ]] || against_row "$name" "${fields[2]}"
        done
    done
    echo
    echo "This build: $(build_name). A ratio below 1 means that this build takes less."
}
