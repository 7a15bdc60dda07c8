# shellcheck shell=bash
# bench pages: what the page codec gains over relation files and a database of SQLite, beside zstd:1 on their raw pages. Needs benchdata.sh and install.sh.
# Never does: write into the databases it reads.
set -euo pipefail

# The relations of a database as the example reads them: name, kind, page size, columns, path. Those of less than a frame are left out.
relation_list() {
    cat <<'SQL'
SELECT concat_ws('|', c.relname, m.amname, current_setting('block_size'),
    coalesce((SELECT string_agg(concat(attlen, ' ', attalign, ' ', atttypid), ',' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0), ''),
    pg_relation_filepath(c.oid))
FROM pg_class c JOIN pg_am m ON m.oid = c.relam
WHERE m.amname IN ('heap', 'btree') AND relnamespace = 'public'::regnamespace AND pg_relation_size(c.oid) >= 131072
ORDER BY c.relname
SQL
}

# pages_of NAME [DATABASE]: the table of one cluster.
pages_of() {
    local rows_file="$results_dir/pages-$1.list"
    serve "$1"
    relation_list | cluster_psql "$serving_dir" "${2:-postgres}" >"$rows_file"
    stop_serving
    "$target_dir/release/examples/relations" "$bench_dir/$1/data" 300 <"$rows_file"
}

bench_pages() {
    need_tpch_cluster
    need_pgbench_cluster
    need_tpch_sqlite
    need_debian_data
    need_mixed_cluster
    need_regression_cluster
    note "building the example relations"
    cargo_build --release --package windlass-pages --example relations
    pages_of "tpch-$scale"
    pages_of "pgbench-$pgbench_scale"
    pages_of mixed
    pages_of regression regression
    echo "tpch.db|sqlite|4096|0|tpch.db" |
        "$target_dir/release/examples/relations" "$bench_dir/sqlite-$scale" 300
    echo "proj.db|sqlite|4096|0|usr/share/proj/proj.db" |
        "$target_dir/release/examples/relations" "$debian_data" 300
}
