# shellcheck shell=bash
# How a script speaks to a person: headed steps, each command as it is run, colours on a terminal only.
# Never does: run a command that it does not show, other than the small ones that set a scene.
set -euo pipefail

paint() {
    if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
        printf '\033[%sm%s\033[0m' "$1" "$2"
    else
        printf '%s' "$2"
    fi
}

bold() { paint 1 "$1"; }
dim() { paint 2 "$1"; }
red() { paint 31 "$1"; }
green() { paint 32 "$1"; }

step_count=0
heading() {
    step_count=$((step_count + 1))
    printf '\n%s\n\n' "$(bold "$step_count. $1")"
}

say() {
    printf '%s\n' "$*"
}

# A command as one would type it: quotes only where a shell needs them.
as_typed() {
    local word line=
    for word in "$@"; do
        if [[ $word =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]]; then
            line+=" $word"
        elif [[ $word != *[\"\`\$\\]* ]]; then
            line+=" \"$word\""
        else
            line+=" '${word//\'/\'\\\'\'}'"
        fi
    done
    printf '%s' "${line# }"
}

show_command() {
    printf '%s\n' "$(bold "\$ $(as_typed "$@")")"
}

run() {
    show_command "$@"
    "$@"
    printf '\n'
}

# Shown without the change of user, which is not the point.
run_as_server() {
    show_command "$@"
    as_server env PATH="$PATH" "$@"
    printf '\n'
}

# run_expecting CODE MEANING COMMAND ...: that command has to fail, with that exit code.
run_expecting() {
    local expected=$1 meaning=$2 status=0
    shift 2
    show_command "$@"
    "$@" || status=$?
    ((status == expected)) || die "exit code $status, expected $expected ($meaning)"
    printf '%s\n\n' "$(green "exit code $status: $meaning, as it should be")"
}

# expect WHAT EXPECTED FOUND: one line of a comparison, and the end of the script when it does not hold.
expect() {
    if [[ $2 == "$3" ]]; then
        printf '  %s %s\n' "$(green ok)" "$1"
    else
        printf '  %s %s: expected %s, found %s\n' "$(red FAILED)" "$1" "$2" "$3"
        exit 1
    fi
}
