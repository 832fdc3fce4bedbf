#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each (go test runs one target a call).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-5s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# go test sometimes fails a run with "context deadline exceeded" because FUZZTIME is over while a worker is busy. That says
# nothing of the target, unless an input was found: run it again, three times at most.
fuzz() {
  for try in 1 2 3; do
    echo "fuzz $1 $2 $time"
    if go test -run '^$' -fuzz "^$2\$" -fuzztime "$time" "$1" </dev/null 2>&1 | tee "$log"; then
      return 0
    fi
    if grep -q 'Failing input written' "$log" || ! grep -q 'context deadline exceeded' "$log"; then
      return 1
    fi
  done
  return 1
}

grep -rlE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(f \*testing\.F\)' . | sort | while read -r file; do
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
    fuzz "${file%/*}" "$target"
  done
done
