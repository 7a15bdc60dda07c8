# shellcheck shell=bash
# bench repository, listing and query: how long a list of many sets of many databases takes, from a directory and from a bucket; and how
# long a set in a bucket takes from `open` to the first answer, and what it fetches for that.
# Never does: reach a server that it did not start. Needs install.sh, measure.sh, benchdata.sh and peers.sh (out, fresh).
#
# The bucket is that of versitygw on this machine, which keeps each object as a file: its latency is that of loopback, not of a network.
set -euo pipefail

bucket_key='windlass-bench'
bucket_secret='windlass-bench-secret'
bucket_server=
bucket_config=

# The server runs as who runs this, so that its number is that of its own process. Clients reach it by the configuration alone.
start_bucket() {
    local program port
    need python3:python3
    program=${WINDLASS_TEST_VERSITYGW:-$(install_versitygw "$(server_place versitygw)")}
    port=$(python3 -c 'import socket; one = socket.socket(); one.bind(("127.0.0.1", 0)); print(one.getsockname()[1])')
    rm -rf "$bench_dir/bucket"
    mkdir -p "$bench_dir/bucket/sets"
    ROOT_ACCESS_KEY=$bucket_key ROOT_SECRET_KEY=$bucket_secret "$program" --quiet --port "127.0.0.1:$port" posix "$bench_dir/bucket" \
        >"$bench_dir/bucket.log" 2>&1 &
    bucket_server=$!
    until (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do
        kill -0 "$bucket_server" 2>/dev/null || { cat "$bench_dir/bucket.log" >&2 && die "versitygw does not start"; }
        sleep 0.1
    done
    bucket_config="$bench_dir/bucket.toml"
    printf 'aws_access_key_id = %s\naws_secret_access_key = %s\n' "$bucket_key" "$bucket_secret" >"$bench_dir/bucket.keys"
    printf '[object]\nendpoint = "http://127.0.0.1:%s"\nregion = "us-east-1"\ncredentials-file = "%s"\n' \
        "$port" "$bench_dir/bucket.keys" >"$bucket_config"
    # Who reads them is the server's user. The keys open nothing but this bucket.
    chmod 644 "$bucket_config" "$bench_dir/bucket.keys"
}

stop_bucket() {
    [[ -n $bucket_server ]] || return 0
    kill "$bucket_server" 2>/dev/null || true
    wait "$bucket_server" 2>/dev/null || true
    bucket_server=
    rm -rf "$bench_dir/bucket"
}

# What the server has written so far, by the kernel's count: answers, and the few objects of a reader.
bucket_written() {
    sed -n 's/^wchar: //p' "/proc/$bucket_server/io"
}

# --- many sets of many databases ---

# fill_place PLACE: with so many sets of 100 databases. As many backups run at once as there are cores, never two of one database.
fill_place() {
    note "making $listed_sets sets of 100 databases in $1"
    seq 0 $((listed_sets - 1)) |
        as_server env WINDLASS_CONFIG="$bucket_config" xargs -P "$(nproc)" -I '{}' bash -c \
            "'$windlass' backup '$(out source)'/shop-\$(({} % 100)).db --to '$1' --no-prediction --no-history --quiet"
}

# list_place PLACE: looks that all sets were shown, too.
list_place() {
    local shown
    timed env WINDLASS_CONFIG="$bucket_config" "$windlass" info "$1" --json
    shown=$(json '.sets | length')
    ((shown == listed_sets)) || die "$1 has $listed_sets sets, and $shown were shown"
}

run_list_directory() { list_place "$(out listed)"; }
run_list_bucket() { list_place s3://sets/listed; }

repository_listing() {
    local number
    start_bucket
    fresh "$(out source)"
    fresh "$(out listed)"
    as_server sqlite3 "$(out source)/shop-0.db" "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT); INSERT INTO item VALUES (1, 'a')"
    for number in {1..99}; do as_server cp "$(out source)/shop-0.db" "$(out source)/shop-$number.db"; done
    fill_place "$(out listed)"
    fill_place s3://sets/listed
    contest repository-listing run_list_directory run_list_bucket
    echo "$listed_sets" >"$results_dir/repository-listing.sets"
    stop_bucket
}

# --- the first query of a set in a bucket ---

run_query_bucket() {
    local before found
    before=$(bucket_written)
    timed env WINDLASS_CONFIG="$bucket_config" "$windlass" open s3://sets/query -- "$PG_BINDIR/psql" --no-psqlrc --quiet --tuples-only \
        --no-align --command 'SELECT count(*), max(c_custkey) FROM customer WHERE c_custkey = 777'
    found=$(<"$bench_dir/last.out")
    [[ $found == '1|777' ]] || die "a wrong answer: $found"
    ((round == 0)) || echo $(($(bucket_written) - before)) >>"$results_dir/repository-query.fetched"
}

repository_query() {
    need_tpch_cluster
    start_bucket
    serve "tpch-$scale"
    timed env WINDLASS_CONFIG="$bucket_config" "$windlass" backup "$uri" --to s3://sets/query --compress none --json
    json .bytes_written >"$results_dir/repository-query.stored"
    stop_serving
    : >"$results_dir/repository-query.fetched"
    contest repository-query run_query_bucket
    stop_bucket
}

# --- their part of the page ---

# listing_row CONTENDER TITLE GOAL
listing_row() {
    local seconds met=no
    seconds=$(median_of repository-listing "$1")
    at_most "$seconds" "$3" && met=yes
    printf '| %s | %.2f | %s | %s |\n' "$2" "$seconds" "$3" "$met"
}

write_listing() {
    [[ -e $results_dir/repository-listing.sets ]] || return 0
    echo
    echo "## Listing many sets"
    echo
    echo "\`windlass info\` of a place with $(<"$results_dir/repository-listing.sets") sets of 100 databases, as one process."
    echo "Commit $(<"$results_dir/repository-listing.build")."
    echo
    echo "| sets in | s | goal: at most | met |"
    echo "|---|---:|---:|---|"
    listing_row list_directory "a directory" 2
    listing_row list_bucket "a bucket" 5
}

write_query() {
    local seconds fetched stored share met=no
    [[ -s $results_dir/repository-query.fetched ]] || return 0
    seconds=$(median_of repository-query query_bucket)
    fetched=$(sort -g "$results_dir/repository-query.fetched" | tail -n 1)
    stored=$(<"$results_dir/repository-query.stored")
    share=$(awk -v a="$fetched" -v b="$stored" 'BEGIN { printf "%.2f", 100 * a / b }')
    at_most "$seconds" 3 && at_most "$share" 5 && met=yes
    echo
    echo "## The first query of a set in a bucket"
    echo
    echo "A set of TPC-H at scale $scale, not compressed. Seconds are those of the whole process of \`windlass open\`, from its start to its end: the server"
    echo "is started, answers one query by an index, and is stopped. Fetched is the most of all rounds. Commit $(<"$results_dir/repository-query.build")."
    echo
    echo "| set GB | s | goal: at most | fetched MB | share of the set | goal: at most | met |"
    echo "|---:|---:|---:|---:|---:|---:|---|"
    printf '| %s | %.2f | 3 | %s | %s %% | 5 %% | %s |\n' "$(quotient "$stored" 1e9)" "$seconds" "$(quotient "$fetched" 1e6 1)" "$share" "$met"
}

write_bucket_parts() {
    write_listing
    write_query
    [[ -s $results_dir/repository-query.fetched || -e $results_dir/repository-listing.sets ]] || return 0
    echo
    echo "The bucket is that of versitygw $versitygw on this machine: between it and Windlass there is no network."
}
