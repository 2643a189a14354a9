#!/bin/sh
# Builds envd, static and stripped, to the path given as the first argument.
set -eu
out=${1:?usage: build.sh OUT}
case $out in /*) ;; *) out=$PWD/$out ;; esac
cd "$(dirname "$0")"
# net/http's HTTP/2 is excluded, since every client speaks HTTP/1.1.
CGO_ENABLED=0 GOWORK=off go build -trimpath -tags nethttpomithttp2 -ldflags "-s -w" -o "$out.new" .
# The rename is atomic, since a sandbox may be starting from the old file.
mv -f "$out.new" "$out"
echo "envd $("$out" -version): $out, $(wc -c <"$out") bytes"
