#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME each (go test runs one target a call).
set -euo pipefail
cd "$(dirname "$0")/.."
time=${FUZZTIME:-5s}
grep -rlE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*\(f \*testing\.F\)' . | sort | while read -r file; do
  grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
    echo "fuzz ${file%/*} $target $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "${file%/*}" </dev/null
  done
done
