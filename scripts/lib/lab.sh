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
    cargo build --release --locked --quiet --manifest-path "$repo_root/Cargo.toml" --package windlass
    windlass="$target_dir/release/windlass"
}

# Backups and restores on emulated storage, beside what the plan says; fails where that is further off than it may be.
bench_plan() {
    local report="$repo_root/docs/bench-plan.md" status=0
    "$windlass" lab rehearse --at-most 0.10,0.25 >"$lab_dir/table" || status=$?
    grep -q '^|' "$lab_dir/table" || die "no run was made"
    {
        echo "# The plan beside real runs"
        echo
        echo "Written by \`scripts/bench plan\`: backups and restores of 96 MiB on emulated storage, each predicted with the buffers it was"
        echo "given; what the set-ups are stands in crates/windlass-lab/src/rehearsal/setups.rs. Asked: a median error of at most 10 %, the"
        echo "worst at most 25 %. The verdict sees storage where the plan sees the machine's cap or the buffers behind it."
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
