# Short names for commands of the scripts and cargo. Nothing needs this file.

# Format and lints: run this before the tests
check:
    cargo fmt --all --check && cargo clippy --workspace --all-targets --locked -- --deny warnings

# All tests; installs what they need
test *ARGUMENTS:
    scripts/test {{ARGUMENTS}}

# The tests with real databases
test-db:
    scripts/test --package windlass-postgres --package windlass-sqlite --package windlass

# Fuzz one decoder until it breaks or you stop it (needs nightly and cargo-fuzz)
fuzz TARGET:
    cargo +nightly fuzz run {{TARGET}}

# Compare with the limits of the machine: cold, zstd, memory or interference
bench WHAT="cold" *OPTIONS:
    scripts/bench {{WHAT}} {{OPTIONS}}

# Compare with pgBackRest, pg_basebackup and sqlite3; writes docs/bench-peers.md
peers *OPTIONS:
    scripts/bench peers {{OPTIONS}}

# The documentation of the crates
doc:
    cargo doc --workspace --no-deps --locked

# Watch Windlass back up, damage, verify and restore live databases
demo *OPTIONS:
    scripts/demo {{OPTIONS}}

# Build the binary
release:
    cargo build --release --locked --package windlass
