#!/usr/bin/env bash
# Generates what is committed although it is made from other files: the Go types of the protobuf contract and the BPF
# objects. With -check it changes nothing, and fails where a committed file is not what would be generated.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
buf=$root/tools/node_modules/.bin/buf

if [ ! -x "$buf" ]; then
  echo "generate: $buf is missing: run 'make setup'" >&2
  exit 1
fi

generate() { # in the tree $1
  rm -f "$1"/api/margayv1alpha1/*.pb.go
  (cd "$1/api" && "$buf" generate)
  (cd "$1" && go generate ./internal/datapath/...)
}

case "${1-}" in
"")
  (cd api && "$buf" format -w)
  generate "$root"
  ;;
-check)
  (cd api && "$buf" lint && "$buf" format --diff --exit-code)
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
  tar -c --exclude=./.git --exclude=./build --exclude=node_modules . | tar -x -C "$copy"
  generate "$copy"
  stale=0
  for tree in api internal/datapath; do
    if [ -d "$tree" ]; then
      diff -rq "$tree" "$copy/$tree" || stale=1
    fi
  done
  if [ "$stale" != 0 ]; then
    echo "generate: these files are not what 'make generate' makes: run it and commit the result" >&2
    exit 1
  fi
  ;;
*)
  echo "usage: tools/generate.sh [-check]" >&2
  exit 2
  ;;
esac
