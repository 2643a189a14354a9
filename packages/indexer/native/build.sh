#!/usr/bin/env bash
# Builds the addon into native/build, or into the given folder, without the rest of the set-up.
set -euo pipefail
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
out=${1:-$here/build}
# The headers are next to the Node that will load the addon.
export SVC_NODE=${SVC_NODE:-$(type -P node)}
cmake -S "$here" -B "$out" -DCMAKE_BUILD_TYPE=Release ${NODE_HEADERS:+-DNODE_HEADERS="$NODE_HEADERS"} >/dev/null
cmake --build "$out" --parallel 1
