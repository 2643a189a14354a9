#!/usr/bin/env bash
# Builds the native module by hand: build.sh [OUT] [cmake options]; OUT is native/build unless it is given.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
out=${1:-$here/build}
shift || true
# Set-up leaves a link into its cache here, which must stay what its name says.
[[ -L $out ]] && rm "$out"
cmake -S "$here" -B "$out" "$@" >/dev/null
cmake --build "$out" -j "${JOBS:-1}"
