# Takes what the archive of a release brings into the cache, where it outlives the folder that was unpacked: sandboxes start from it, and a
# paused one needs its template as long as it exists. Sourced by install.sh, and only in such a folder.
#
#   COMMIT               tar unpacks it first
#   prebuilt/KIND/NAME   what set-up would make, as in the cache
#   prebuilt/complete    the same commit as in COMMIT; tar unpacks it last

prebuilt_refuses() { printf 'svc: %s\n' "$*" >&2; exit 1; }

# Package files of another release of Debian, or where only root could install them.
is_foreign() {
  [[ $1 == debs/* ]] || return 1
  ((EUID != 0)) || [[ $1 != debs/$(. /etc/os-release && echo "$ID-${VERSION_CODENAME-}")-* ]]
}

take_prebuilt() {
  local from=$SVC_ROOT/prebuilt part making said lacking=()
  cmp -s "$SVC_ROOT/COMMIT" "$from/complete" || prebuilt_refuses "the archive was not unpacked completely into $SVC_ROOT; see that its disk has space, and unpack it again"
  for part in "$from"/*/*; do
    part=${part#"$from"/}
    [[ -e $SVC_CACHE/$part ]] || is_foreign "$part" || lacking+=("$part")
  done
  ((${#lacking[@]})) || return 0
  exec 8>"$SVC_CACHE/locks/import.lock"
  flock -w 600 8 || prebuilt_refuses "another ./svc has filled $SVC_CACHE for ten minutes; try again when it has ended"
  for part in "${lacking[@]}"; do
    [[ ! -e $SVC_CACHE/$part ]] || continue
    making=$SVC_CACHE/${part%/*}/.making-${part##*/}
    mkdir -p "${making%/*}"
    rm -rf --one-file-system "$making"
    # Links take neither time nor space; another file system, or another owner's files, need a copy.
    cp -al "$from/$part" "$making" 2>/dev/null || {
      rm -rf --one-file-system "$making"
      said=$(cp -a --reflink=auto "$from/$part" "$making" 2>&1) || {
        rm -rf --one-file-system "$making"
        ((EUID == 0)) || said+="; a user without root needs a copy that they unpacked themselves"
        prebuilt_refuses "$from/$part could not be copied into $SVC_CACHE: ${said//$'\n'/; }"
      }
    }
    mv -T "$making" "$SVC_CACHE/$part"
  done
  exec 8>&-
}
