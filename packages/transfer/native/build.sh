#!/usr/bin/env bash
# Builds the native module by hand: build.sh [OUT] [cmake options]; OUT is native/build unless it is given.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
out=${1:-$here/build}
shift || true
# Set-up leaves a link into its cache here. A build through it would change a cache entry whose name is the hash of its sources.
[[ -L $out ]] && rm "$out"
cmake -S "$here" -B "$out" "$@" >/dev/null
cmake --build "$out" -j "${JOBS:-1}"
