#!/usr/bin/env bash
# Installs what the checks and tests need from the distribution; does nothing where all of it is there.
set -euo pipefail
cd "$(dirname "$0")/.."

declare -A package=(
  [clang]=clang [llvm-strip]=llvm [ip]=iproute2 [nft]=nftables [ethtool]=ethtool [curl]=curl [tshark]=tshark [npm]=npm [gcc]=gcc
)
missing=()
for program in "${!package[@]}"; do
  command -v "$program" >/dev/null 2>&1 || missing+=("${package[$program]}")
done
[ -e /usr/include/bpf/bpf_helpers.h ] || missing+=(libbpf-dev)
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "setup: missing ${missing[*]}: run it as root, or: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
if [ ! -x tools/node_modules/.bin/buf ]; then
  npm ci --prefix tools --no-audit --no-fund --loglevel=error
fi
