# Reads one member of an export from standard input. The tar of `import.sh` starts it, with the member's name in TAR_FILENAME; SVC_WANTED
# lists the parts that this tree needs. It writes into SVC_IMPORT, which `import.sh` then reads:
#
#   manifest             as received
#   refused              why this export does not fit here; the rest is then ignored
#   N.sum, N/, N.error   part N: its SHA-256, its content if it is needed and missing, and why it could not be unpacked

readonly manifest_bytes=65536
work=$SVC_IMPORT manifest=$SVC_IMPORT/manifest

refuse() {
  printf '%s\n' "$*" >"$work/refused"
  cat >/dev/null
  exit
}

read_manifest() {
  local arch path
  head -c "$manifest_bytes" >"$manifest"
  [[ $(head -n 1 "$manifest" | tr -d '\0') == 'svc-export 1' ]] || refuse "is not an export of svc, or one of a later version"
  arch=$(sed -n 's/^arch //p' "$manifest")
  [[ $arch == "$(uname -m)" ]] || refuse "was made on $arch, and this machine is $(uname -m)"
  while read -r _ _ path; do
    [[ $path =~ ^(node|runsc|envd|console|native|templates|npm|debs)/[A-Za-z0-9._-]+$ && ${path#*/} != .* ]] || refuse "names '$path', which does not belong in an export"
  done < <(grep '^part ' "$manifest")
}

# Unpacks and hashes in one pass, since writing and rereading the data would take twice as long.
read_part() {
  local number=$1 path
  path=$(grep '^part ' "$manifest" | sed -n "${number}s/^part [^ ]* //p")
  if [[ -z $path || $SVC_WANTED != *" $path "* || -e $SVC_CACHE/$path ]]; then
    sha256sum >"$work/$number.sum"
    return
  fi
  mkdir "$work/$number"
  mkfifo "$work/$number.bytes"
  sha256sum <"$work/$number.bytes" >"$work/$number.sum" &
  # Bytes that tar does not read must be part of the hash as well.
  tee -p "$work/$number.bytes" | tar --extract --numeric-owner --preserve-permissions --xattrs --xattrs-include='*' \
    --directory "$work/$number" "$path" 2>"$work/$number.error" && rm "$work/$number.error"
  wait
}

[[ ! -e $work/refused ]] || { cat >/dev/null; exit; }
case $TAR_FILENAME in
  manifest) read_manifest ;;
  [1-9].tar | [1-9][0-9].tar)
    [[ -f $manifest ]] || refuse "is not an export of svc, or one of a later version"
    read_part "${TAR_FILENAME%.tar}"
    ;;
  *) refuse "is not an export of svc, or one of a later version" ;;
esac
