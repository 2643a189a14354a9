#!/usr/bin/env bash
# Runs a command of svc where set-up is done already, as in an image or a systemd unit: nothing is looked for, nothing installed.
# I42: nothing here installs or holds a secret.
set -euo pipefail

SVC_ROOT=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
# A server's own user has neither a home nor a cache of its own.
export HOME=${HOME:-/} SVC_CACHE=${SVC_CACHE:-/var/cache/svc} SVC_HOME=${SVC_HOME:-/var/lib/svc}
source "$SVC_ROOT/setup/paths.sh"
node_present || { echo "svc: there is no Node at $SVC_NODE; run $SVC_ROOT/svc setup first" >&2; exit 1; }
exec_node "$SVC_ROOT/packages/cli/src/main.ts" "$@"
