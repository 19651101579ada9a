# The tasks of vault. `just` lists them.

_default:
    @just --list

# Everything that CI asks before the tests: format, lints, docs, dependency rules.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
    # No member of the workspace, so nothing else builds it.
    cargo check --manifest-path fuzz/Cargo.toml --all-targets --quiet

# Dependency rules (needs cargo-deny: `cargo install cargo-deny --locked`).
deny:
    cargo deny check bans licenses sources

# All tests, with their own set-up.
test *ARGS:
    ./tests/run {{ARGS}}

# What must be green before a commit.
check: lint deny test

# The whole story in a temporary folder; Ctrl-C ends it.
demo:
    cargo run -p vault-cli -- demo

# One table of benchmarks, each as a ratio to a baseline of the same run.
bench *ARGS:
    ./tests/bench/run {{ARGS}}

# Each fuzz target for SECONDS (needs cargo-fuzz: `cargo install cargo-fuzz --locked`).
fuzz SECONDS="60":
    ./fuzz/run {{SECONDS}}
