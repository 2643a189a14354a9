#!/bin/sh
# The base template's last step, run by mmdebstrap with the new root's path: the user, the files of ../skeleton, the host's trust store.
set -eu
root=$1
here=$(dirname "$0")

chroot "$root" groupadd --gid 1000 user
chroot "$root" useradd --uid 1000 --gid 1000 --create-home --home-dir /home/user --shell /bin/bash user
"$here/../lay-skeleton.sh" "$root"
chroot "$root" chown -R user:user /home/user
chmod 0440 "$root/etc/sudoers.d/user"

# The host's proxies, and credentials in a mirror's address, must not reach a guest.
sed -i '/^Acquire::https*::/d' "$root"/etc/apt/apt.conf.d/99mmdebstrap
sed -i 's,://[^/@ ]*@,://,' "$root"/etc/apt/sources.list

rm -rf "$root/var/cache/apt/archives" "$root"/var/log/*.log "$root/var/log/apt"
mkdir -p "$root/var/cache/apt/archives/partial" "$root/var/log/apt"
