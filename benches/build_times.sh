#!/usr/bin/env bash
# Builds legwork from nothing as a newcomer does, and prints the times and the size beside their aims. It needs a quiet machine
# with the dependencies downloaded (`cargo fetch`), and 3 GB of disk.
set -eu
cd "$(dirname "$0")/.."
unset CARGO_INCREMENTAL
target=$(mktemp -d)
trap 'rm -rf "$target"' EXIT

# Prints the seconds that a command takes.
seconds() {
    local start=$SECONDS
    "$@" > "$target/log" 2>&1 < /dev/null || { cat "$target/log" >&2; exit 1; }
    echo $((SECONDS - start))
}

export CARGO_TARGET_DIR=$target/build
first=$(seconds cargo run --locked -- run jobs/tour.yaml --model replay/jobs/tour.script.yaml --out "$target/runs")
release=$(seconds cargo build --locked --release)
size=$(stat --format %s "$CARGO_TARGET_DIR/release/legwork")

printf '| %-48s | %-6s | %-8s |\n' "on $(nproc) processors" aim measured "---" --- ---
printf '| %-48s | %-6s | %-8s |\n' \
    "the first command of the README, with its build" "120 s" "$first s" \
    "a release build" "240 s" "$release s" \
    "its executable" "15 MB" "$((size / 1000000)) MB"
