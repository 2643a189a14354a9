#!/bin/sh
# Copies the files that both templates share over a root: profiles, hosts, sudo's rule, pip's settings, and the host's trust store.
set -eu
root=$1
here=$(dirname "$0")

cp -R "$here/skeleton/." "$root/"
: > "$root/etc/machine-id"
rm -f "$root/etc/resolv.conf"
: > "$root/etc/resolv.conf"

bundle=/etc/ssl/certs/ca-certificates.crt
if [ -s "$bundle" ]; then
  mkdir -p "$root/etc/ssl/certs" "$root/usr/local/share/ca-certificates"
  rm -f "$root$bundle"
  cp "$bundle" "$root$bundle"
  # A later update-ca-certificates inside the sandbox keeps the host's own authorities.
  if [ -d /usr/local/share/ca-certificates ]; then
    cp -RL /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
  fi
fi
