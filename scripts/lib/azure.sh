# shellcheck shell=bash
# soak azure: sets of a SQLite database that somebody writes to, in a container of Azurite, Microsoft's own server for tests of
# Azure Blob Storage. Backups are killed at random moments; what was sealed is verified, restored and compared; what has expired goes.
# Never does: reach a server that it did not start. Needs common.sh, install.sh, writers.sh; of scripts/soak windlass, work, seed,
# rounds, draw, begin_work, end_work, kill_backup, whole_millis.
set -euo pipefail

azurite=3.37.0
# Azurite's account and key are the same everywhere; its documentation names them.
azure_account=devstoreaccount1
azure_key=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==
azure_port=
azure_server=
azure_killed=0
azure_kept=0

# install_azurite DIR: prints the directory of the package.
install_azurite() {
    local dir=$1
    need node:nodejs npm:npm
    if [[ ! -e $dir/.complete-$azurite ]]; then
        note "installing Azurite $azurite from the npm registry, log in $dir/install.log"
        mkdir -p "$dir"
        npm install --prefix "$dir" --no-fund --no-audit "azurite@$azurite" >"$dir/install.log" 2>&1 ||
            die "Azurite $azurite cannot be installed; $dir/install.log says why"
        touch "$dir/.complete-$azurite"
    fi
    echo "$dir/node_modules/azurite"
}

# azure_request METHOD PATH?QUERY: prints the answer of the server.
azure_request() {
    python3 - "$1" "$2" "$azure_port" "$azure_account" "$azure_key" <<'PYTHON'
import base64, datetime, hashlib, hmac, sys, urllib.parse, urllib.request
method, target, port, account, key = sys.argv[1:]
path, _, query = target.partition("?")
date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
words = sorted(urllib.parse.parse_qsl(query))
resource = f"/{account}/{account}{path}" + "".join(f"\n{name}:{value}" for name, value in words)
text = method + "\n" * 12 + "".join(f"{name}:{headers[name]}\n" for name in sorted(headers)) + resource
signed = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(signed).decode()}"
url = f"http://127.0.0.1:{port}/{account}{target}"
request = urllib.request.Request(url, method=method, headers=headers)
print(urllib.request.urlopen(request, timeout=60).read().decode())
PYTHON
}

start_azurite() {
    local package=$1 tries
    azure_port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    mkdir -p "$work/azurite"
    node "$package/dist/src/blob/main.js" --silent --location "$work/azurite" --blobPort "$azure_port" \
        --skipApiVersionCheck >"$work/azurite.log" 2>&1 &
    azure_server=$!
    for ((tries = 0; tries < 600; tries++)); do
        if azure_request PUT "/sets?restype=container" >/dev/null 2>&1; then return; fi
        kill -0 "$azure_server" 2>/dev/null || break
        sleep 0.1
    done
    cat "$work/azurite.log" >&2
    die "Azurite does not answer"
}

stop_azurite() {
    [[ -z $azure_server ]] || { kill "$azure_server" 2>/dev/null && wait "$azure_server" 2>/dev/null; } || true
    azure_server=
}

# The names of the stripes in the container.
azure_stripes() {
    azure_request GET "/sets?comp=list&restype=container" | grep -o '<Name>[^<]*\.windlass</Name>' || true
}

# A full set, a killed backup, an incremental one, and a restore of the last; the first set of the round before goes.
azure_round() {
    local place=az://sets/shop first last full=("$windlass" backup shop.db --to az://sets/shop --quiet) before
    local start=${EPOCHREALTIME/[.,]/}
    draw none lz4 zstd:1
    "${full[@]}" --compress "$drawn" >/dev/null
    whole_millis=$(((${EPOCHREALTIME/[.,]/} - start) / 1000))
    before=$(azure_stripes | wc -l)
    backup_command=("${full[@]}" --compress "$drawn")
    kill_backup
    azure_killed=$((azure_killed + 1))
    [[ $(azure_stripes | wc -l) == "$before" ]] || { azure_kept=$((azure_kept + 1)) && note "it was sealed before the kill"; }
    "$windlass" verify "$place" --quiet >/dev/null
    first=$(ledger_length shop.db)
    "${full[@]}" --type incr >/dev/null
    last=$(ledger_length shop.db)
    "$windlass" verify "$place" --quiet >/dev/null
    "$windlass" restore "$place" --into restored.db --quiet >/dev/null
    compare_ledgers shop.db restored.db "$first" "$last"
    rm -f restored.db*
    # What it hides, the second run removes.
    "$windlass" expire "$place" --keep-full 1 --grace 0 --quiet >/dev/null
    "$windlass" expire "$place" --keep-full 1 --grace 0 --quiet >/dev/null
    (($(azure_stripes | wc -l) <= 3)) || die "what has expired is still there: $(azure_stripes)"
}

soak_azure() {
    local round package
    note "azure: $rounds rounds, seed $seed"
    RANDOM=$seed
    package=$(install_azurite "$target_dir/azurite")
    begin_work
    start_azurite "$package"
    printf 'account_name = %s\naccess_key = %s\n' "$azure_account" "$azure_key" >keys
    printf '[object]\nendpoint = "http://127.0.0.1:%s/%s"\ncredentials-file = "%s/keys"\ndeadline = "60s"\n' \
        "$azure_port" "$azure_account" "$work" >windlass.toml
    export WINDLASS_CONFIG=$work/windlass.toml
    make_ledger_database shop.db 100000
    "$windlass" check shop.db --to az://sets/shop
    start_ledger_writer shop.db
    for ((round = 1; round <= rounds; round++)); do
        note "azure: round $round of $rounds"
        azure_round
    done
    note "azure: $rounds rounds, $azure_killed backups killed, $azure_kept of them sealed before"
    stop_ledger_writer
    stop_azurite
    unset WINDLASS_CONFIG
    end_work
}
