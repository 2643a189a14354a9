#!/usr/bin/env bash
# Regenerates the seccomp programs: generate.sh [ARCHITECTURE…] [--into FOLDER]; needed when runsc's version or a filter in patches/ changes.
set -euo pipefail
SVC_ROOT=$(cd -- "${BASH_SOURCE[0]%/*}/../.." && pwd -P)
source "$SVC_ROOT/setup/paths.sh"
source "$SVC_ROOT/setup/go.sh"
source "$SVC_ROOT/setup/runsc/tune.sh"

into=$SVC_ROOT/setup/runsc/programs architectures=()
while (($#)); do
  case $1 in
    --into) into=${2:?--into expects a folder}; shift 2 ;;
    amd64 | arm64) architectures+=("$1"); shift ;;
    *) echo "usage: generate.sh [amd64] [arm64] [--into FOLDER]" >&2; exit 2 ;;
  esac
done
((${#architectures[@]})) || architectures=(amd64 arm64)

use_go
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch_runsc "$work/source"
tune_runsc "$work/source"
for process in sentry gofer; do
  cp "$SVC_ROOT/setup/runsc/generate/$process.go" "$(filter_folder "$work/source" "$process")/config/options_of_svc.go"
done
apply_patch "$SVC_ROOT/setup/runsc/generate/generate.patch" "$work/source"
mkdir "$work/source/svcfilters"
cp "$SVC_ROOT/setup/runsc/generate/main.go" "$work/source/svcfilters/"
for architecture in "${architectures[@]}"; do
  (cd "$work/source" && GOARCH=$architecture "$GO" build -trimpath -o "$work/generate-$architecture" ./svcfilters)
  runner=()
  # The layout of system calls is the architecture's own, so the generator runs as a program of it.
  [[ $architecture == "$("$GO" env GOHOSTARCH)" ]] || case $architecture in
    arm64) runner=(qemu-aarch64-static) ;;
    amd64) runner=(qemu-x86_64-static) ;;
  esac
  "${runner[@]}" "$work/generate-$architecture" "$into"
done
