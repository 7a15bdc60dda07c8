# shellcheck shell=bash
# soak garage: sets of a SQLite database that somebody writes to, in a bucket of Garage, a distributed server that keeps three
# copies: three nodes on this machine. Another node than the one that is asked is killed during each backup and each restore; what
# was sealed is verified, restored and compared. With two nodes dead no backup may succeed, and none may leave anything behind.
# Never does: reach a server that it did not start. Needs common.sh, install.sh, writers.sh; of scripts/soak windlass, work, seed,
# rounds, draw, begin_work, end_work, whole_millis.
set -euo pipefail

garage=2.5.0
garage_program=
garage_key=GK000102030405060708090a0b
garage_secret=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
# The process of each node, by its number, and the ports of all: S3, RPC and administration of the first, then of the second, ...
garage_nodes=([1]="" [2]="" [3]="")
garage_ports=()
garage_killed=0

# install_garage DIR: prints the program. WINDLASS_TEST_GARAGE names one that is there; to build one takes 20 minutes of a core.
install_garage() {
    local dir=$1
    if [[ -n ${WINDLASS_TEST_GARAGE:-} ]]; then
        echo "$WINDLASS_TEST_GARAGE"
        return
    fi
    if [[ $("$dir/bin/garage" --version 2>/dev/null) != *"$garage"* ]]; then
        note "building Garage $garage, which takes 20 minutes of a core, log in $dir/install.log"
        mkdir -p "$dir"
        CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_OPT_LEVEL=2 \
            cargo install garage --version "$garage" --locked --root "$dir" >"$dir/install.log" 2>&1 ||
            die "Garage $garage cannot be built; $dir/install.log says why"
    fi
    echo "$dir/bin/garage"
}

# garage_port NODE KIND: the port of a node; 0 for S3, 1 for RPC, 2 for administration.
garage_port() {
    echo "${garage_ports[($1 - 1) * 3 + $2]}"
}

# garage_do NODE WORD ...: a command of the program, about a node.
garage_do() {
    "$garage_program" -c "$work/garage-$1.toml" "${@:2}"
}

configure_node() {
    local node=$1
    cat >"$work/garage-$node.toml" <<TOML
metadata_dir = "$work/garage-$node/meta"
data_dir = "$work/garage-$node/data"
db_engine = "sqlite"
replication_factor = 3
rpc_bind_addr = "127.0.0.1:$(garage_port "$node" 1)"
rpc_public_addr = "127.0.0.1:$(garage_port "$node" 1)"
rpc_secret = "$garage_secret"
[s3_api]
s3_region = "garage"
api_bind_addr = "127.0.0.1:$(garage_port "$node" 0)"
[admin]
api_bind_addr = "127.0.0.1:$(garage_port "$node" 2)"
TOML
    mkdir -p "$work/garage-$node/meta" "$work/garage-$node/data"
}

start_node() {
    local node=$1 tries
    # Not through garage_do: what is killed must be the server, not a shell that waits for it.
    "$garage_program" -c "$work/garage-$node.toml" server >>"$work/garage-$node.log" 2>&1 &
    garage_nodes[node]=$!
    for ((tries = 0; tries < 600; tries++)); do
        if garage_do "$node" node id -q >/dev/null 2>&1 && garage_do "$node" status >/dev/null 2>&1; then return; fi
        kill -0 "${garage_nodes[node]}" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/garage-$node.log" >&2
    die "node $node of Garage does not answer"
}

# Waits until the first node sees so many others.
await_nodes() {
    local count=$1 tries
    for ((tries = 0; tries < 600; tries++)); do
        [[ $(garage_do 1 status 2>/dev/null | sed -n '/HEALTHY NODES/,/^$/p' | grep -c 127.0.0.1) == "$count" ]] && return
        sleep 0.1
    done
    garage_do 1 status >&2
    die "Garage has not $count nodes"
}

start_garage() {
    local node
    mapfile -t garage_ports < <(python3 -c '
import socket
sockets = [socket.socket() for _ in range(9)]
for one in sockets: one.bind(("127.0.0.1", 0))
print("\n".join(str(one.getsockname()[1]) for one in sockets))')
    for node in 1 2 3; do configure_node "$node" && start_node "$node"; done
    for node in 2 3; do garage_do 1 node connect "$(garage_do "$node" node id -q)" >/dev/null; done
    for node in 1 2 3; do
        garage_do 1 layout assign -z "dc$node" -c 10G "$(garage_do "$node" node id -q | cut -d @ -f 1)" >/dev/null
    done
    garage_do 1 layout apply --version 1 >/dev/null
    garage_do 1 key import --yes -n windlass "$garage_key" "$garage_secret" >/dev/null
    garage_do 1 bucket create sets >/dev/null
    garage_do 1 bucket allow --read --write --owner sets --key windlass >/dev/null
    await_nodes 3
}

kill_node() {
    kill -KILL "${garage_nodes[$1]}" 2>/dev/null || true
    wait "${garage_nodes[$1]}" 2>/dev/null || true
    garage_nodes[$1]=
}

stop_garage() {
    local node
    for node in 1 2 3; do
        [[ -z ${garage_nodes[node]} ]] || kill_node "$node"
    done
}

# without_node COMMAND ...: runs it, and kills one of the other nodes somewhere within the time that a whole backup took. The
# command must succeed all the same. Then the node comes back.
without_node() {
    local pid victim delay=$((RANDOM * whole_millis / 32768))
    draw 2 3
    victim=$drawn
    "$@" >/dev/null &
    pid=$!
    sleep "$(printf '%d.%03d' $((delay / 1000)) $((delay % 1000)))"
    kill_node "$victim"
    garage_killed=$((garage_killed + 1))
    note "node $victim killed after $delay ms of about $whole_millis"
    wait "$pid" || die "it failed because one node of three was killed: $*"
    start_node "$victim"
    await_nodes 3
}

# A full set, an incremental one and a restore, each while a node dies; the first set of the round before goes.
garage_round() {
    local place=s3://sets/shop first last full=("$windlass" backup shop.db --to s3://sets/shop --quiet)
    local start=${EPOCHREALTIME/[.,]/}
    draw none lz4 zstd:1
    "${full[@]}" --compress "$drawn" >/dev/null
    whole_millis=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
    without_node "${full[@]}" --compress "$drawn"
    first=$(ledger_length shop.db)
    without_node "${full[@]}" --type incr
    last=$(ledger_length shop.db)
    "$windlass" verify "$place" --quiet >/dev/null
    without_node "$windlass" restore "$place" --into restored.db --quiet
    compare_ledgers shop.db restored.db "$first" "$last"
    rm -f restored.db*
    # What it hides, the second run removes.
    "$windlass" expire "$place" --keep-full 1 --grace 0 --quiet >/dev/null
    "$windlass" expire "$place" --keep-full 1 --grace 0 --quiet >/dev/null
    (($("$windlass" info "$place" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["sets"]))') <= 2)) ||
        die "what has expired is still there"
}

# With two nodes dead nothing can be written: the backup fails, and the next one cleans up.
garage_without_two() {
    local place=s3://sets/shop status=0 before
    before=$("$windlass" info "$place" --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["sets"]))')
    kill_node 2
    kill_node 3
    "$windlass" backup shop.db --to "$place" --quiet >two.out 2>&1 || status=$?
    [[ $status == 1 ]] || { cat two.out >&2 && die "a backup without two nodes of three ended with $status"; }
    note "with two nodes dead: $(head -n 1 two.out)"
    start_node 2
    start_node 3
    await_nodes 3
    "$windlass" backup shop.db --to "$place" --quiet >/dev/null
    "$windlass" info "$place" --json >sets.json
    expect "only the whole set came" "$((before + 1)) 0" "$(python3 -c '
import json
found = json.load(open("sets.json"))
print(len(found["sets"]), len(found["unfinished"]))')"
    "$windlass" verify "$place" --quiet >/dev/null
}

soak_garage() {
    local round
    note "garage: $rounds rounds, seed $seed"
    RANDOM=$seed
    garage_program=$(install_garage "$target_dir/garage")
    begin_work
    start_garage
    printf 'aws_access_key_id = %s\naws_secret_access_key = %s\n' "$garage_key" "$garage_secret" >keys
    printf '[object]\nendpoint = "http://127.0.0.1:%s"\nregion = "garage"\ncredentials-file = "%s/keys"\ndeadline = "60s"\n' \
        "$(garage_port 1 0)" "$work" >windlass.toml
    export WINDLASS_CONFIG=$work/windlass.toml
    make_ledger_database shop.db 100000
    # Garage replaces an object that is only to be created, and the check warns of that.
    "$windlass" check shop.db --to s3://sets/shop || (($? == 3)) || die "the bucket cannot be used"
    start_ledger_writer shop.db
    for ((round = 1; round <= rounds; round++)); do
        note "garage: round $round of $rounds"
        garage_round
    done
    garage_without_two
    note "garage: $rounds rounds, $garage_killed nodes killed, and two at once"
    stop_ledger_writer
    stop_garage
    unset WINDLASS_CONFIG
    end_work
}
