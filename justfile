# Short names for what the scripts and cargo do. A convenience: nothing needs it.

# What a change has to pass before it is worth a test run
check:
    cargo fmt --all --check && cargo clippy --workspace --all-targets --locked -- --deny warnings

# Everything, with what it needs installed
test *ARGUMENTS:
    scripts/test {{ARGUMENTS}}

# The tests that run real databases
test-db:
    scripts/test --package windlass-postgres --package windlass-sqlite --package windlass

# One decoder, until it breaks or you stop it (nightly, cargo-fuzz)
fuzz TARGET:
    cargo +nightly fuzz run {{TARGET}}

# Against the machine's limits: cold, zstd, memory or interference
bench WHAT="cold" *OPTIONS:
    scripts/bench {{WHAT}} {{OPTIONS}}

# Beside pgBackRest, pg_basebackup and sqlite3; writes docs/bench-peers.md
peers *OPTIONS:
    scripts/bench peers {{OPTIONS}}

# The crates' documentation
doc:
    cargo doc --workspace --no-deps --locked

# Live databases backed up, damaged, verified and restored, for you to watch
demo *OPTIONS:
    scripts/demo {{OPTIONS}}

# The binary to ship
release:
    cargo build --release --locked --package windlass
