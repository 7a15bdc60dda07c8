# shellcheck shell=bash
# Writes docs/bench-snapshots.md from the results of `bench snapshots`.
# Never does: measure, round in anybody's favour, or name the machine. Needs measure.sh.
set -euo pipefail

# phase_ratios PHASE BASE: one of each round. What a round measured twice counts with its mean.
phase_ratios() {
    awk -F '\t' -v phase="$1" -v base="$2" '$2 == phase { a[$1] += $3; times_a[$1]++ } $2 == base { b[$1] += $3; times_b[$1]++ }
        END { for (round in a) if (b[round] > 0) print a[round] / times_a[round] / (b[round] / times_b[round]) }' "$results_dir/snapshots.tsv"
}

recorded() { awk -F '\t' -v phase="$1" '$2 == phase { print $3 }' "$results_dir/snapshots.tsv"; }

# in_order: the numbers on the input, sorted.
in_order() { sort --general-numeric-sort | awk '{ printf "%s%.3g", (n++ ? ", " : ""), $1 }'; }

# goal_row WHAT at-least|at-most GOAL: of the values on its input. The median counts.
goal_row() {
    local met=no values value
    values=$(sort --general-numeric-sort)
    value=$(median <<<"$values")
    if [[ $2 == at-most ]]; then at_most "$value" "$3" && met=yes; else at_most "$3" "$value" && met=yes; fi
    printf '| %s | %s | %s %s | %s | %s |\n' "$1" "$(awk -v v="$value" 'BEGIN { printf "%.4g", v }')" "${2/-/ }" "$3" "$met" \
        "$(in_order <<<"$values")"
}

# creation_values NAME: the seconds of each of these creations, without those in which Windlass waited for the statement that begins the server's
# backup: it forces the checkpoint. What comes before it, and what is not done when it returns (the first links), counts.
creation_values() {
    awk -F '\t' -v name="$1" '$1 != name { next } FILENAME ~ /steps/ { if ($2 == 0) steps++; if ($3 ~ /checkpoint/) checkpoint[steps] += $4; next }
        { print $2 - checkpoint[++creations] }' "$results_dir/steps.tsv" "$results_dir/creations.tsv"
}

# met VALUE AT-MOST
met() { if at_most "$1" "$2"; then echo yes; else echo no; fi; }

# creation_row GOAL-OF-SECONDS GOAL-OF-STOPPED NAME
creation_row() {
    local seconds stopped
    seconds=$(creation_values "$3" | median)
    stopped=$(awk -F '\t' -v name="$3" '$1 == name { print $3 }' "$results_dir/creations.tsv" | median)
    printf '| %s | %.3f | %s | %s | %.3f | %s | %s | %s |\n' "$3" "$seconds" "$1" "$(met "$seconds" "$1")" "$stopped" "$2" "$(met "$stopped" "$2")" \
        "$(creation_values "$3" | awk '{ printf "%s%.3f", (n++ ? ", " : ""), $1 }')"
}

# noise: by how many percent two runs of one phase differ within a round, in the median.
noise() {
    awk -F '\t' '$2 !~ /^plain/ { next } { key = $1 FS $2; if (key in first) { d = $3 - first[key]; print 200 * (d < 0 ? -d : d) / ($3 + first[key]) } else first[key] = $3 }' \
        "$results_dir/snapshots.tsv" | median
}

# step_rows NAME: where the time of these creations went, in the order of the steps.
step_rows() {
    local step
    awk -F '\t' -v name="$1" '$1 == name && !seen[$3]++ { print $2 "\t" $3 }' "$results_dir/steps.tsv" | sort --numeric-sort | cut --fields=2 |
        while IFS= read -r step; do
            printf '| %s | %.1f |\n' "$step" "$(awk -F '\t' -v name="$1" -v step="$step" '$1 == name && $3 == step { print $4 * 1000 }' "$results_dir/steps.tsv" | median)"
        done
}

step_table() {
    echo
    echo "| step of \"$1\" | ms |"
    echo "|---|---:|"
    step_rows "$1"
}

snapshot_rows() {
    recorded 'library beside none' | goal_row "throughput with the library and no snapshot, to none" at-least 0.98
    recorded 'one beside none' |
        goal_row "throughput with one snapshot $settling_seconds s later, to none" at-least 0.93
    recorded 'five beside one' |
        goal_row "throughput with five snapshots $settling_seconds s later, to one" at-least 0.97
    recorded 'five beside one, first seconds' |
        goal_row "throughput with five snapshots in the first $first_seconds s of the newest, to one in its own" at-least 0.97
    phase_ratios 'one, first seconds' 'plain, first seconds' |
        goal_row "throughput with one snapshot in its first $first_seconds s, to none, phase by phase" at-least 0.85
    phase_ratios 'durable, first seconds' 'plain, first seconds' |
        goal_row "throughput with one durable snapshot in its first $first_seconds s, to none, phase by phase" at-least 0.85
    phase_ratios durable plain | goal_row "throughput with one durable snapshot after that, to none, phase by phase" at-least 0.85
    recorded 'space of five, to the oldest alone' | goal_row "space of five snapshots, to the oldest alone" at-most 1.05
    recorded 'MB kept after DROP, TRUNCATE, VACUUM FULL' |
        goal_row "MB kept after DROP, TRUNCATE and VACUUM FULL of three large tables" at-most 1
    recorded 'seconds to the first answer' | goal_row "seconds from \`open\` to the first answer" at-most 1
    recorded 'scan of the source, to that of the view' | goal_row "speed of a warm scan of the view, to the source's" at-least 0.7
    recorded 'seconds of a revert, without those of a restart' |
        goal_row "seconds of a revert of $(recorded 'pages of a revert' | median) pages, without those of a restart of the server" at-most 3
}

write_snapshots_page() {
    local page="$repo_root/docs/bench-snapshots.md"
    {
        echo "# What snapshots by the hook cost"
        echo
        echo "\`scripts/bench snapshots\` wrote this page: pgbench with 8 clients at scale $pgbench_scale and $few_files more tables, medians of $pairs rounds of $seconds s."
        echo "Ratios are of values of one round. Two servers, one of each kind, each with its own clients, have the processors in turns of $slice_seconds s, so that"
        echo "a slower moment of the machine meets both. Two servers without the library gave $(recorded 'none beside none' | in_order). \"Phase by phase\": one"
        echo "server after the other, because the disk is not shared then; two runs of the same phase differ by $(printf '%.0f' "$(noise)") % within a round, in the median."
        echo
        echo "| what | measured | goal | met | each round, in order of size |"
        echo "|---|---:|---|---|---|"
        snapshot_rows
        echo
        echo "A cluster of 3 GB in more than $few_files files, where the row says no other number:"
        echo
        echo "| how a snapshot began | seconds, without the server's checkpoint | at most | met | seconds in which nobody could write | at most | met | seconds of each |"
        echo "|---|---:|---:|---|---:|---:|---|---|"
        creation_row 0.150 0.030 "checkpoint, idle"
        creation_row 0.150 0.030 "checkpoint, 8 clients"
        creation_row 0.150 0.030 "pause, idle"
        creation_row 0.150 0.030 "pause, 8 clients"
        creation_row 2 0.100 "pause, $many_files files, idle"
        creation_row 2 0.100 "pause, $many_files files, 8 clients"
        step_table "checkpoint, 8 clients"
        step_table "pause, 8 clients"
        echo
        echo "Machine: $(machine_description). Commit $(cat "$results_dir/snapshots.build")."
    } >"$results_dir/page.new"
    mv "$results_dir/page.new" "$page"
    cat "$page"
}
