#!/usr/bin/env bash
# Hooks of a node whose sandboxes end with its container: before-stop pauses them, after-start takes the node back into service.
set -euo pipefail

serve=${BASH_SOURCE[0]%/*}/serve.sh
export SVC_URL=${SVC_URL:-http://127.0.0.1:8000} SVC_HOME=${SVC_HOME:-/var/lib/svc}
export SDK_API_KEY=${SVC_API_KEY:-$(</run/secrets/api-key)}
mark=$SVC_HOME/drained-by-stop

case ${1-} in
  before-stop)
    # A drain that somebody began before stays in force after the start.
    [[ -e $SVC_HOME/draining ]] || : >"$mark"
    "$serve" nodes drain self
    ;;
  after-start)
    [[ -e $mark ]] || exit 0
    # A node serves once it knows what it owns; with etcd away that takes as long as it takes.
    until "$serve" nodes undrain self 2>/dev/null; do sleep 1; done
    rm -f "$mark"
    ;;
  *)
    echo "svc: expected before-stop or after-start, got \"${1-}\"" >&2
    exit 2
    ;;
esac
