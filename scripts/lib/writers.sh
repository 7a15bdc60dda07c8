# shellcheck shell=bash
# Live databases for the demo and the soak: a SQLite shop with a ledger writer, a PostgreSQL cluster under pgbench.
# Both keep a history from which every balance can be computed again, so that a restored copy is judged exactly.
# Never does: end a process that it did not start. Needs common.sh, show.sh and, for pgbench, cluster.sh.
set -euo pipefail

ledger_writer=
ledger_shell=
pgbench_pid=

# About half a gigabyte: orders that rest, accounts that a writer moves money between, and the ledger of its moves.
make_ledger_database() {
    local database=$1 orders=${2:-2000000}
    sqlite3 "$database" >/dev/null <<SQL
PRAGMA journal_mode = WAL;
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE ledger (id INTEGER PRIMARY KEY, payer INTEGER, payee INTEGER, amount INTEGER, noted TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY, account INTEGER, placed TEXT, item TEXT, note TEXT, token BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
INSERT INTO accounts SELECT i, 1000 FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $orders)
INSERT INTO orders SELECT i, 1 + abs(random()) % 100000, datetime(1700000000 + i * 31, 'unixepoch'),
    printf('article %06d, colour %02d, size %d', abs(random()) % 200000, i % 97, i % 7),
    printf('deliver to door %d, %d Harbour Street, invoice %08x', i % 13, abs(random()) % 400, i * 2654435761 % 4294967296),
    randomblob(64)
FROM n;
CREATE INDEX orders_by_account ON orders (account, placed);
COMMIT;
SQL
}

# print_transfer NUMBER: the ledger's row of that number, drawn anew, and the two accounts that it changes.
print_transfer() {
    local payer=$((RANDOM * 3 % 100000 + 1)) payee=$((RANDOM * 5 % 100000 + 1)) amount=$((RANDOM % 90 + 10))
    printf 'INSERT INTO ledger VALUES (%d, %d, %d, %d, datetime()); ' "$1" "$payer" "$payee" "$amount"
    printf 'UPDATE accounts SET balance = balance - %d WHERE id = %d; ' "$amount" "$payer"
    printf 'UPDATE accounts SET balance = balance + %d WHERE id = %d;\n' "$amount" "$payee"
}

# print_transaction NUMBER [SQL]: the same as one transaction, which does more if SQL is given.
print_transaction() {
    echo 'BEGIN IMMEDIATE;'
    print_transfer "$1"
    printf '%s COMMIT;\n' "${2:-}"
}

# One small transaction after the other, each numbered by its ledger row, about every 2 ms.
write_ledger() {
    local number pause
    exec {pause}<> <(:)
    for ((number = $1 + 1; ; number++)); do
        print_transaction "$number"
        read -r -t 0.002 -u "$pause" || true
    done
}

start_ledger_writer() {
    local database=$1 length pipe
    length=$(ledger_length "$database")
    pipe=$(mktemp -u "$database.writer.XXXXXX")
    mkfifo "$pipe"
    sqlite3 -bail -cmd '.timeout 120000' -cmd 'PRAGMA synchronous = NORMAL' "$database" <"$pipe" &
    ledger_shell=$!
    write_ledger "$length" >"$pipe" 2>/dev/null &
    ledger_writer=$!
    # Both have it open once a transaction is there; then the name is not needed any more.
    until (($(ledger_length "$database") > length)); do
        kill -0 "$ledger_shell" 2>/dev/null || die "the writer on $database ended early"
    done
    rm -f "$pipe"
}

stop_ledger_writer() {
    if [[ -n $ledger_writer ]]; then
        kill "$ledger_writer" 2>/dev/null || true
        wait "$ledger_writer" 2>/dev/null || true
        ledger_writer=
        wait "$ledger_shell" || { printf 'the writer on the SQLite database met an error\n' >&2 && return 1; }
    fi
}

ledger_length() {
    sqlite3 -cmd '.timeout 120000' "$1" "SELECT coalesce(max(id), 0) FROM ledger"
}

ledger_rate() {
    local before after
    before=$(ledger_length "$1")
    sleep 1
    after=$(ledger_length "$1")
    echo $((after - before))
}

# compare_ledgers LIVE RESTORED FIRST LAST: the restored database is LIVE as of one transaction from FIRST to LAST.
compare_ledgers() {
    local live=$1 restored=$2 first=$3 last=$4 length
    length=$(ledger_length "$restored")
    expect "the restored database ends with transaction $length; the backup ran from $first to $last" \
        1 "$((first <= length && length <= last))"
    expect "no transaction up to it is missing" "$length" "$(sqlite3 "$restored" "SELECT count(*) FROM ledger")"
    expect "every transaction is the live database's" 0 "$(ask_both "$live" "$restored" \
        "SELECT count(*) FROM ledger r LEFT JOIN live.ledger l USING (id)
         WHERE (r.payer, r.payee, r.amount, r.noted) IS NOT (l.payer, l.payee, l.amount, l.noted)")"
    expect "all 100000 balances are the sum of those transactions, and of no later one" 0 "$(wrong_balances "$restored")"
    expect "all $(sqlite3 "$live" "SELECT count(*) FROM orders") orders are equal" 0 "$(ask_both "$live" "$restored" \
        "SELECT (SELECT count(*) FROM orders r LEFT JOIN live.orders l USING (id)
                 WHERE (r.account, r.placed, r.item, r.note, r.token)
                       IS NOT (l.account, l.placed, l.item, l.note, l.token))
              + (SELECT count(*) FROM live.orders) - (SELECT count(*) FROM orders)")"
}

ask_both() {
    sqlite3 -cmd '.timeout 120000' -cmd "ATTACH '$1' AS live" "$2" "$3"
}

wrong_balances() {
    sqlite3 "$1" "WITH moves(account, amount) AS (SELECT payer, -amount FROM ledger UNION ALL SELECT payee, amount FROM ledger),
        due AS (SELECT account, sum(amount) AS amount FROM moves GROUP BY account)
        SELECT count(*) FROM accounts LEFT JOIN due ON account = id WHERE balance <> 1000 + coalesce(due.amount, 0)"
}

# flip_one_bit FILE OFFSET
flip_one_bit() {
    local file=$1 offset=$2 byte
    byte=$(od -An -tu1 -j "$offset" -N 1 "$file")
    # shellcheck disable=SC2059
    printf "\\x$(printf '%02x' $((byte ^ 1)))" | dd of="$file" bs=1 seek="$offset" conv=notrunc status=none
    say "Flipped one bit of $file, at byte $offset."
}

start_pgbench() {
    local dir=$1
    as_server "$PG_BINDIR/pgbench" --no-vacuum --client 2 --time 3600 --rate 500 --host "$dir/socket" \
        --username postgres postgres >"$(dirname "$dir")/pgbench.log" 2>&1 &
    pgbench_pid=$!
}

stop_pgbench() {
    if [[ -n $pgbench_pid ]]; then
        # runuser hands SIGTERM on to the program that it runs.
        kill -TERM "$pgbench_pid" 2>/dev/null || true
        wait "$pgbench_pid" 2>/dev/null || true
        pgbench_pid=
    fi
}

pgbench_transactions() {
    cluster_psql "$1" postgres --command "SELECT count(*) FROM pgbench_history"
}

# Every balance that is not the sum of the history's changes to it: a torn or mixed copy has some.
wrong_pgbench_balances() {
    local dir=$1 table=$2 key=$3 balance=$4
    cluster_psql "$dir" postgres --command "
        SELECT count(*) FROM $table LEFT JOIN (SELECT $key, sum(delta) AS due FROM pgbench_history GROUP BY 1) h USING ($key)
        WHERE $balance <> coalesce(due, 0)"
}

pgbench_history() {
    cluster_psql "$1" postgres --command "COPY pgbench_history TO STDOUT" | LC_ALL=C sort
}

# compare_pgbench LIVE RESTORED FIRST LAST: RESTORED is LIVE as of one moment between FIRST and LAST transactions.
compare_pgbench() {
    local live=$1 restored=$2 first=$3 last=$4 length
    length=$(pgbench_transactions "$restored")
    expect "the restored cluster has $length transactions; the backup ran from $first to $last" \
        1 "$((first <= length && length <= last))"
    expect "every one of them is the source's" 0 "$(comm -23 <(pgbench_history "$restored") <(pgbench_history "$live") | wc -l)"
    expect "all account balances are their sums" 0 "$(wrong_pgbench_balances "$restored" pgbench_accounts aid abalance)"
    expect "all teller balances are their sums" 0 "$(wrong_pgbench_balances "$restored" pgbench_tellers tid tbalance)"
    expect "all branch balances are their sums" 0 "$(wrong_pgbench_balances "$restored" pgbench_branches bid bbalance)"
}
