#!/usr/bin/env bash
# Fills the root of the template `host`: folders, links as on the host, and the few files of /etc that programs in /usr read. build.sh ROOT
# MEMBERS writes template.json's own members to MEMBERS; build.sh ROOT --rights sets owners and modes at the end.
set -euo pipefail
root=$1

if [[ $2 == --rights ]]; then
  chmod 0440 "$root/etc/sudoers" "$root/etc/sudoers.d/user"
  chmod 0640 "$root/etc/shadow"
  chmod 0700 "$root/root"
  if ((EUID == 0)); then chown -R 1000:1000 "$root/home/user"; fi
  exit
fi

mkdir -p "$root"/{dev,etc,home/user,mnt,opt,proc,root,run,srv,sys,tmp,usr,var/{cache,lib,log,mail,spool,tmp}}
chmod 1777 "$root/tmp" "$root/var/tmp"
ln -s /run "$root/var/run"
ln -s /run/lock "$root/var/lock"

# A host with merged /usr has links here; an older one has separate folders, which are bound like /usr.
binds='"/usr"'
for name in bin sbin lib lib32 lib64 libx32; do
  if [[ -L /$name ]]; then
    ln -s "$(readlink "/$name")" "$root/$name"
  elif [[ -d /$name ]]; then
    mkdir "$root/$name"
    binds+=", \"/$name\""
  fi
done

etc=$root/etc
cat >"$etc/passwd" <<'TEXT'
root:x:0:0:root:/root:/bin/bash
daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin
www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin
user:x:1000:1000:user:/home/user:/bin/bash
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
TEXT
cat >"$etc/group" <<'TEXT'
root:x:0:
daemon:x:1:
tty:x:5:
sudo:x:27:user
www-data:x:33:
shadow:x:42:
user:x:1000:
nogroup:x:65534:
TEXT
printf '%s\n' 'root:*:19000:0:99999:7:::' 'user:*:19000:0:99999:7:::' >"$etc/shadow"
printf '%s\n' 'passwd: files' 'group: files' 'shadow: files' 'hosts: files dns' 'services: files' 'protocols: files' >"$etc/nsswitch.conf"
printf '%s\n' 'Defaults env_reset' 'Defaults secure_path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"' \
  'root ALL=(ALL:ALL) ALL' '@includedir /etc/sudoers.d' >"$etc/sudoers"

# Programs of the host's /usr read these: library paths, alternatives, sudo's modules, TLS settings, time zone, terminals.
for name in ld.so.cache ld.so.conf ld.so.conf.d alternatives pam.d security login.defs ssl/openssl.cnf localtime \
  services protocols mime.types debian_version python3 terminfo gai.conf host.conf; do
  [[ -e /etc/$name ]] || continue
  mkdir -p "$etc/$(dirname "$name")"
  # Files that only root can read (0600) must not reach a guest, so they are skipped silently.
  cp -R --no-dereference --preserve=mode,links "/etc/$name" "$etc/$name" 2>/dev/null || true
done

# Succeeds if everybody may read the file: each folder on the way must allow it too.
public() {
  local above=${1%/*}
  while [[ $above == /etc/* ]]; do
    [[ $(stat -c %A "$above") == *[xt] ]] || return 1
    above=${above%/*}
  done
}

# Links below /usr lead into /etc as well (Java's and Maven's settings, for example). What such a link leads to comes along,
# and then what the links in that lead to, so that no program finds a link to nothing.
places_of_links() {
  find "$@" -xdev -type l -printf '%h\t%l\n' |
    awk -F '\t' '$2 ~ /^\/etc\// { print $2; next } $2 ~ /^(\.\.\/)+etc\// || $1 ~ /\/etc(\/|$)/ && $2 !~ /^\// { print $1 "/" $2 }' |
    xargs -d '\n' -r realpath -ms -- | sed "s|^$root/etc/|/etc/|" | { grep '^/etc/' || true; } | sort -u
}
for ((round = 0; round < 4; round++)); do
  added=0
  while IFS= read -r place; do
    [[ ! -e $root$place && ! -L $root$place && ( -e $place || -L $place ) ]] || continue
    # The host's own variables are no program's settings, and proxies' passwords may stand there.
    [[ $place != /etc/environment ]] && public "$place" || continue
    mkdir -p "$root${place%/*}"
    cp -R --no-dereference --preserve=mode,links,timestamps "$place" "$root$place" 2>/dev/null || true
    added=1
  done < <(if ((round == 0)); then places_of_links /usr "$etc"; else places_of_links "$etc"; fi)
  ((added)) || break
done
find "$etc" -type f ! -perm -o+r ! -name shadow -delete
find "$etc" -mindepth 1 -type d ! -perm -o+rx -prune -exec rm -rf {} +
ln -sf ../usr/lib/os-release "$etc/os-release"
ln -sf /proc/mounts "$etc/mtab"

missing=()
for name in bash python3 git curl sudo ps ss getfattr; do
  [[ -x /usr/bin/$name || -x /bin/$name ]] || missing+=("\"$name\"")
done
# Programs expect `python` everywhere; if the host lacks it, the template provides it in a separate folder.
if [[ ! -e /usr/bin/python && -x /usr/bin/python3 ]]; then
  mkdir -p "$root/opt/svc/bin" "$etc/profile.d"
  ln -s /usr/bin/python3 "$root/opt/svc/bin/python"
  printf '%s\n' '# The host has no `python` of its own.' 'PATH="$PATH:/opt/svc/bin"' >"$etc/profile.d/svc-python.sh"
fi
absent=$(IFS=,; echo "${missing[*]-}")
printf '"binds": [%s],\n  "missing": [%s]' "$binds" "${absent//,/, }" >"$2"
