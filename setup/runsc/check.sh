#!/usr/bin/env bash
# Reports which of our patches apply to a release of runsc: check.sh [VERSION]; default: the pinned release. Then formats and vets the touched files.
set -euo pipefail
SVC_ROOT=$(cd -- "${BASH_SOURCE[0]%/*}/../.." && pwd -P)
source "$SVC_ROOT/setup/paths.sh"
source "$SVC_ROOT/setup/go.sh"
source "$SVC_ROOT/setup/runsc/tune.sh"

SVC_RUNSC_VERSION=${1:-$SVC_RUNSC_VERSION}
use_go
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch_runsc "$work/source"
unformatted() { (cd "$work/source" && gofmt -l $(find . -path ./vendor -prune -o -name '*.go' ! -name 'filter_generated_*' -print)) | sort; }
unformatted >"$work/before"
failed=0 touched=()
for each in "$SVC_ROOT"/setup/runsc/patches/*.patch; do
  # The later patches may apply without one that does not, so that one run names all that need work.
  if apply_patch "$each" "$work/source" >"$work/says"; then echo "${each##*/}: applies"; else cat "$work/says"; failed=1; fi
  while read -r _ path; do touched+=("${path#b/}"); done < <(grep '^+++ ' "$each")
done
((!failed)) || exit 1

tune_files "$work/source"
while read -r path; do touched+=("${path#./}"); done < <(cd "$SVC_ROOT/setup/runsc/files" && find . -name '*.go')
# Some of the release's own files are not formatted, either.
ours=$(unformatted | comm -13 "$work/before" -)
[[ -z $ours ]] || { echo "gofmt would change: "$ours; exit 1; }
cd "$work/source"
# runsc's own code uses unkeyed composite literals, and its access to the host's memory needs unsafe pointers.
go vet -composites=false -unsafeptr=false $(printf './%s\n' "${touched[@]%/*}" | sort -u)
echo "all apply, and gofmt and go vet find nothing"
