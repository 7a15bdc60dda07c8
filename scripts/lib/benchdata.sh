# shellcheck shell=bash
# The databases that the benchmarks read: TPC-H in PostgreSQL and in SQLite, a cluster of many small tables, and one for
# pgbench. Each is made once below bench_dir and kept, so that a second run starts at once.
# Never does: measure. Needs common.sh, install.sh and cluster.sh.
set -euo pipefail

tpchgen_version=4.0.0
tpch_tables=(region nation supplier customer part partsupp orders lineitem)

# Faster while loading; a cluster is stopped cleanly before it counts as made.
loading=(fsync=off full_page_writes=off wal_level=minimal max_wal_senders=0 max_wal_size=8GB autovacuum=off
    maintenance_work_mem=512MB)
# Nothing but the backup works during a run.
serving=(autovacuum=off max_wal_size=4GB)

need_tpchgen() {
    local tools="$bench_dir/tools"
    tpchgen="$tools/bin/tpchgen-cli"
    if [[ ! -x $tpchgen ]]; then
        note "building tpchgen-cli $tpchgen_version (a few minutes)"
        cargo install tpchgen-cli --version "$tpchgen_version" --locked --no-default-features --quiet --root "$tools"
    fi
}

# made NAME BUILDER ...: runs BUILDER with the directory of NAME unless an earlier run completed it.
made() {
    local dir="$bench_dir/$1"
    shift
    if [[ ! -e $dir.complete ]]; then
        note "making $(basename "$dir")"
        rm -rf "$dir"
        server_dir "$dir"
        "$@" "$dir"
        touch "$dir.complete"
    fi
}

build_tpch_cluster() {
    local dir=$1 table
    need_tpchgen
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" "${loading[@]}"
    cluster_psql "$dir" postgres <"$here/lib/tpch-tables.sql"
    for table in "${tpch_tables[@]}"; do
        "$tpchgen" csv --scale-factor "$scale" --tables "$table" --stdout --quiet |
            cluster_psql "$dir" postgres --command "COPY $table FROM STDIN (FORMAT csv, HEADER)"
    done
    cluster_psql "$dir" postgres <"$here/lib/tpch-indexes.sql"
    cluster_psql "$dir" postgres --command "VACUUM ANALYZE"
    cluster_stop "$dir"
}

build_tpch_sqlite() {
    local dir=$1 table
    need_tpchgen
    {
        echo "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;"
        cat "$here/lib/tpch-tables.sql"
        for table in "${tpch_tables[@]}"; do
            printf '.import --csv --skip 1 "|%s csv --scale-factor %s --tables %s --stdout --quiet" %s\n' \
                "$tpchgen" "$scale" "$table" "$table"
        done
        cat "$here/lib/tpch-indexes.sql"
        echo "PRAGMA wal_checkpoint(TRUNCATE);"
    } | as_server sqlite3 -bail "$dir/tpch.db" >/dev/null
}

# One page a table, no index and no TOAST: as many files as tables, which is what file by file work stumbles over.
build_small_tables() {
    local dir=$1
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" "${loading[@]}"
    cluster_psql "$dir" postgres <<SQL
CREATE PROCEDURE make_tables(count integer) LANGUAGE plpgsql AS \$\$
BEGIN
    FOR i IN 1..count LOOP
        EXECUTE format('CREATE TABLE small_%s (id integer, amount integer, noted timestamptz)', i);
        EXECUTE format('INSERT INTO small_%s SELECT n, n * %s, now() FROM generate_series(1, 40) n', i, i);
        IF i % 500 = 0 THEN COMMIT; END IF;
    END LOOP;
END \$\$;
CALL make_tables($small_tables);
SQL
    cluster_stop "$dir"
}

build_pgbench_cluster() {
    local dir=$1
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" "${loading[@]}"
    as_server "$PG_BINDIR/pgbench" --initialize --init-steps tgvp --quiet --scale "$pgbench_scale" \
        --host "$dir/socket" --username postgres postgres >/dev/null 2>&1
    cluster_stop "$dir"
}

# Kinds of data that nobody tuned the page codec for. Texts: the dictionary of WordNet, as Debian packages it.
build_mixed_cluster() {
    local dir=$1
    need_debian_data
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" "${loading[@]}"
    cluster_psql "$dir" postgres <"$here/lib/mixed-tables.sql"
    sed 's/\\/\\\\/g; s/\t/ /g' "$debian_data/usr/share/wordnet/data.noun" "$debian_data/usr/share/wordnet/data.verb" |
        cluster_psql "$dir" postgres --command "COPY texts (line) FROM STDIN"
    cluster_psql "$dir" postgres --command "VACUUM FREEZE"
    cluster_stop "$dir"
}

# What PostgreSQL's own regression tests leave behind: small relations of every kind. A test that fails here, because it asks for another
# setting, leaves its tables as well.
build_regression_cluster() {
    local dir=$1 suite
    suite=$(install_regression_suite "$(server_place postgres)/regress")
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" fsync=off autovacuum=off
    as_server mkdir -p "$dir/output"
    (cd "$suite" && as_server env --unset=PGDATABASE --unset=LC_ALL ./pg_regress --bindir="$PG_BINDIR" --inputdir=. --dlpath=. \
        --outputdir="$dir/output" --host="$dir/socket" --port=5432 --user=postgres --max-connections=8 \
        --schedule=parallel_schedule >"$dir/output/messages" 2>&1) ||
        note "not all regression tests passed; $dir/output/messages says which"
    cluster_psql "$dir" regression --command "CHECKPOINT"
    cluster_stop "$dir"
}

# What applications log: random ids, times, and documents of which the keys repeat and the values do not.
build_events_cluster() {
    local dir=$1
    cluster_create "$dir"
    cluster_start "$dir" "$PG_BINDIR" "${loading[@]}"
    cluster_psql "$dir" postgres <<'SQL'
SELECT setseed(0.5);
CREATE TABLE events AS
SELECT gen_random_uuid() AS id, timestamptz '2026-01-01' + n * interval '83 ms' + random() * interval '1 s' AS noted,
    (random() * 50000)::integer AS account, gen_random_uuid() AS session,
    jsonb_build_object('kind', (ARRAY['view', 'click', 'order', 'return'])[1 + (random() * 3)::integer], 'path', '/item/' || (random() * 90000)::integer,
        'seconds', round((random() * 30)::numeric, 2), 'agent', jsonb_build_object('mobile', random() < 0.6, 'version', (random() * 20)::integer),
        'trace', md5(random()::text)) AS document
FROM generate_series(1, 2000000) n;
ALTER TABLE events ADD PRIMARY KEY (id);
CREATE INDEX ON events (account, noted);
CREATE INDEX ON events (noted);
VACUUM FREEZE;
SQL
    cluster_stop "$dir"
}

# Data of packages, without installing them.
need_debian_data() {
    debian_data="$bench_dir/tools/debian"
    [[ ! -e $debian_data/usr/share/proj/proj.db ]] || return 0
    note "fetching wordnet-base and proj-data"
    mkdir -p "$debian_data/packages"
    (cd "$debian_data/packages" && apt-get download --quiet wordnet-base proj-data >/dev/null)
    local package
    for package in "$debian_data"/packages/*.deb; do dpkg-deb --extract "$package" "$debian_data"; done
}

need_regression_cluster() { made regression build_regression_cluster; }
need_mixed_cluster() { made mixed build_mixed_cluster; }
need_tpch_cluster() { made "tpch-$scale" build_tpch_cluster; }
need_tpch_sqlite() { made "sqlite-$scale" build_tpch_sqlite; }
need_small_tables() { made "small-$small_tables" build_small_tables; }
need_events_cluster() { made events build_events_cluster; }
need_pgbench_cluster() { made "pgbench-$pgbench_scale" build_pgbench_cluster; }

# serve NAME: starts the cluster of that name alone, and remembers it for the trap.
serving_dir=
serve() {
    stop_serving
    serving_dir="$bench_dir/$1"
    cluster_start "$serving_dir" "$PG_BINDIR" "${serving[@]}"
    uri=$(cluster_uri "$serving_dir")
}

stop_serving() {
    [[ -z $serving_dir ]] || cluster_stop "$serving_dir" "$PG_BINDIR" fast
    serving_dir=
}
