# `./svc uninstall`: stops what runs, then removes state, cache and node_modules, or a single home; Debian packages only on request. Sourced
# by `svc`.

# A node limits its own clean stop to 10 s.
readonly stop_wait_seconds=15
agreed=no packages=no alone=no
while (($#)); do
  word=$1
  shift
  case $word in
    -h | --help)
      cat <<TEXT
Usage: ./svc uninstall [--yes] [--packages] [--home DIR]
Stops the servers and removes the sandboxes of this machine, then $SVC_HOME, $SVC_CACHE, node_modules and the client's saved credentials.
--packages also removes the Debian packages that set-up installed; --yes does not ask.
--home DIR stops the servers and removes the sandboxes of that home, then DIR, and nothing else.
TEXT
      exit 0
      ;;
    --yes | -y) agreed=yes ;;
    --packages) packages=yes ;;
    --home | --home=*)
      if [[ $word == *=* ]]; then SVC_HOME=${word#*=}; elif (($#)); then SVC_HOME=$1; shift; else SVC_HOME=; fi
      [[ -d $SVC_HOME ]] || { echo "svc: --home: expected the folder of a home, got \"$SVC_HOME\", which is not there; nothing was removed" >&2; exit 2; }
      SVC_HOME=$(CDPATH='' cd -- "$SVC_HOME" && pwd -P)
      export SVC_HOME
      alone=yes
      ;;
    *) echo "svc: uninstall knows no option $word; see ./svc uninstall --help" >&2; exit 2 ;;
  esac
done

# Only folders that set-up or a server created may be removed.
looks_ours() {
  case $1 in
    "$SVC_CACHE") [[ -d $1/locks && -d $1/logs ]] ;;
    "$SVC_HOME") [[ -e $1/secrets || -e $1/sandboxes.db || -e $1/node.json || -e $1/up.json || -d $1/nodes/1 || ($alone == no && -z $(ls -A "$1")) ]] || has_kept "$1" ;;
  esac
}

# Recognizes a home without a node by the files of master, service, admin server, indexer or metadata server.
has_kept() {
  compgen -G "$1/store/log-*.log" >/dev/null || [[ -e $1/store-service/identity.json || -d $1/store-admin || -e $1/indexer/index.snapshot || -d $1/metadata/records ]]
}

# The names that servers use in a home; each may have a suffix after a dot, as databases and incomplete files do.
readonly kept_names=' api-keys audit backup bin draining egress-secrets etcd events files indexer keys layers logs lost+found membership metadata network node node-id nodes objects oci
  previews reserve restore-unfinished run sandboxes secrets quarantine snapshots store store-admin store-service templates tls snapshot-transfer up usage volumes webhooks '

# Lists entries of the home that no server created, in case somebody's own folder was given as a home.
foreign_in() {
  local file name
  for file in "$1"/* "$1"/.[!.]*; do
    name=${file##*/}
    [[ -e $file || -L $file ]] || continue
    name=${name#.}
    [[ " ${kept_names//$'\n'/ } " == *" ${name%%[.]*} "* ]] || echo "${file##*/}"
  done
}

if [[ $alone == yes && $packages == yes ]]; then echo "svc: --packages and --home do not go together: other homes need the packages" >&2; exit 2; fi

targets=()
for folder in "$SVC_HOME" "$SVC_CACHE"; do
  [[ $alone == no || $folder == "$SVC_HOME" ]] || continue
  [[ -e $folder ]] || continue
  if looks_ours "$folder"; then targets+=("$folder"); else echo "svc: $folder does not look like a folder of svc and is left alone" >&2; fi
done
foreign=$(if [[ " ${targets[*]-} " == *" $SVC_HOME "* ]]; then foreign_in "$SVC_HOME"; fi)
if [[ -n $foreign ]]; then
  echo "svc: nothing was removed: $SVC_HOME also holds what no server of svc made; move it away, or remove the folder yourself:" >&2
  head -n 20 <<<"$foreign" | sed 's/^/    /' >&2
  exit 1
fi
if [[ $alone == yes && ${#targets[@]} -eq 0 ]]; then
  echo "svc: --home: expected the folder of a home, got \"$SVC_HOME\", in which no server has left anything; nothing was removed" >&2
  exit 2
fi
# The client's saved credentials and compiled sources, and what set-up put into the tree. The archive of a release has its modules from the
# start, and could not fetch them again.
in_tree=("$SVC_ROOT/node_modules" "$SVC_ROOT/.making-node_modules" "$SVC_ROOT"/packages/*/node_modules "$SVC_ROOT"/packages/*/native/build)
[[ ! -d $SVC_ROOT/prebuilt ]] || in_tree=()
[[ $alone == yes ]] || for folder in "${XDG_CONFIG_HOME:-${HOME-}/.config}/svc/credentials" "${XDG_CACHE_HOME:-${HOME-}/.cache}/svc/compiled" "${in_tree[@]}"; do
  if [[ -e $folder || -L $folder ]]; then targets+=("$folder"); fi
done

added=
if [[ $alone == no && -s $SVC_CACHE/debian-packages-added ]]; then added=$(sort -u "$SVC_CACHE/debian-packages-added" | tr '\n' ' '); fi

if [[ $alone == yes ]]; then whose="the servers of $SVC_HOME"; else whose='svc on this machine'; fi
echo "svc: this stops $whose, ends its sandboxes and removes:"
printf '    %s\n' "${targets[@]-nothing; there is none of it}"
if [[ $agreed == no ]]; then
  if [[ ! -t 0 ]]; then
    again="./svc uninstall --yes"
    if [[ $packages == yes ]]; then again+=" --packages"; fi
    if [[ $alone == yes ]]; then again+=" --home $(printf %q "$SVC_HOME")"; fi
    echo "svc: nothing was removed; without a terminal, run $again" >&2
    exit 1
  fi
  read -r -p "Remove all this? [y/N] " answer
  [[ $answer == [yY]* ]] || { echo "svc: nothing was removed"; exit 1; }
fi

# A cluster of `svc up --nodes` keeps the home of each node below its own.
homes=("$SVC_HOME")
for folder in "$SVC_HOME"/nodes/*/; do if [[ -d $folder ]]; then homes+=("${folder%/}"); fi; done

node_pid() { sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$1/node.json" 2>/dev/null || true; }

# Stops a node that `up` does not supervise. The file may outlive its process, and its process id may belong to another program.
stop_node() {
  local pid waited=0
  pid=$(node_pid "$1")
  [[ -n $pid && -r /proc/$pid/cmdline && $(tr '\0' ' ' <"/proc/$pid/cmdline") == *main.ts* ]] || return 0
  kill -TERM "$pid" || return 0
  while [[ -d /proc/$pid ]] && ((waited++ < stop_wait_seconds * 10)); do sleep 0.1; done
  if [[ -d /proc/$pid ]]; then kill -KILL "$pid" || true; fi
}

# Runs a program of the tree; its output is shown only if it fails.
quietly() {
  local said
  said=$(exec_node "$@" 2>&1) || { tail -n 20 <<<"$said" >&2; return 1; }
}

# Uses the tree's own programs, which know every part of a sandbox; Node and its packages are installed again if they are missing.
stop_all() {
  local home leave
  { node_present && modules_present; } || (install_for client) || return 1
  SVC_HOME=$SVC_HOME quietly "$SVC_ROOT/packages/cli/src/main.ts" down || return 1
  for home in "${homes[@]}"; do stop_node "$home"; done
  # Sandboxes outlive their node on purpose; the node's records are needed to end them.
  for home in "${homes[@]}"; do
    [[ -f $home/sandboxes.db ]] || continue
    # A deployment of `up` goes with its etcd and its object storage; of any other one the node says what it would leave there.
    leave=()
    if [[ $home == "$SVC_HOME"/nodes/* ]]; then leave=(--leave-exported); fi
    SVC_HOME=$home quietly "$SVC_ROOT/packages/sandbox/src/node/main.ts" --destroy-all "${leave[@]}" --home="$home" || return 1
  done
}

has_records() {
  local home
  [[ -f $SVC_HOME/up.json ]] && return
  for home in "${homes[@]}"; do if [[ -f $home/sandboxes.db || -f $home/node.json ]]; then return; fi; done
  return 1
}

# Prints a line for each process with the home on its command line, and for each mount below it, except for our own callers.
# I47: a home is removed only when this list is empty.
living() {
  local real pid=$BASHPID callers=' ' file names=()
  real=$(CDPATH='' cd -- "$SVC_HOME" && pwd -P) || return 0
  while [[ -n $pid && $pid != 0 ]]; do callers+="$pid "; pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null || true); done
  # The pattern matches the whole path, and no longer path that contains it.
  for file in "$SVC_HOME" "$real"; do
    names+=(-e "(^|[^[:alnum:]_./-])$(sed 's/[^[:alnum:]_/]/[&]/g; s/\[^\]/\\^/g' <<<"$file")(/|\$|[^[:alnum:]_.-])")
  done
  for file in $(grep -lazsE "${names[@]}" /proc/[0-9]*/cmdline || true); do
    pid=${file//[!0-9]/}
    if [[ $callers != *" $pid "* && -r $file ]]; then echo "process $pid: $({ tr '\0\n' '  ' <"$file"; } 2>/dev/null | cut -c 1-160)"; fi
  done
  UNDER="${real// /\\040}/" awk 'index($2, ENVIRON["UNDER"]) == 1 { print "mount " $2 }' /proc/mounts
}

# The names of a node's network parts and cgroups begin with a part of its home's hash (sandbox/src/network/names.ts,
# sandbox/src/runtime/cgroup.ts).
hashes=()
for home in "${homes[@]}"; do
  [[ -d $home && -x $(type -P sha256sum) ]] || continue
  hashes+=("$(printf %s "$(CDPATH='' cd -- "$home" && pwd -P)" | sha256sum)")
done

# Lists the cgroups of those homes, innermost first.
groups_of_homes() {
  local hash
  for hash in "${hashes[@]}"; do find /sys/fs/cgroup -depth -type d \( -name "svc-${hash:0:8}" -o -path "*/svc-${hash:0:8}/*" \) 2>/dev/null || true; done
}

# Prints, for each network namespace, interface, table and cgroup of those homes, the command that removes it.
parts_left() {
  local hash token file
  for hash in "${hashes[@]}"; do
    token=${hash:0:6}
    for file in /run/netns/svc-"$token"-*; do if [[ -e $file ]]; then echo "ip netns del ${file##*/}"; fi; done
    for file in /sys/class/net/svc-"$token"-*; do if [[ -e $file ]]; then echo "ip link del ${file##*/}"; fi; done
    for file in /sys/class/net/svcb*; do
      if [[ $(cat "$file/ifalias" 2>/dev/null || true) == "$token" ]]; then echo "ip link del ${file##*/}"; fi
    done
    if nft list table inet "svc_$token" >/dev/null 2>&1; then echo "nft delete table inet svc_$token"; fi
  done
  groups_of_homes | sed 's/^/rmdir /'
}

if [[ " ${targets[*]-} " == *" $SVC_HOME "* ]]; then
  if has_records && ! stop_all; then for home in "${homes[@]}"; do stop_node "$home"; done; fi
  # Unmounts layers of images that builds left mounted; a layer in use stays, and is named below.
  for home in "${homes[@]}"; do
    while read -r mount; do umount "$mount" || true; done < <(awk -v under="$home/run/images/" 'index($2, under) == 1 { print $2 }' /proc/mounts | sort -r)
  done
  # Killed processes take a moment to end.
  for ((until = SECONDS + 3; ; )); do
    left=$(living)
    [[ -n $left ]] && ((SECONDS < until)) || break
    sleep 0.1
  done
  if [[ -n $left ]]; then
    echo "svc: these servers or sandboxes of $SVC_HOME could not be ended, so nothing was removed; end them, then run ./svc uninstall again:" >&2
    sed 's/^/    /' <<<"$left" >&2
    exit 1
  fi
fi

for folder in "${targets[@]}"; do
  # The contents of a mount below would be deleted with the folder.
  while read -r mount; do umount -l "$mount" || true; done < <(awk -v under="$folder/" 'index($2, under) == 1 { print $2 }' /proc/mounts | sort -r)
  if ((EUID != 0)); then chmod -R u+rwX "$folder" 2>/dev/null || true; fi
  # Without root, files of sandboxes belong to other user ids, which only a user namespace can change.
  if ((EUID != 0)) && [[ -n $(find "$folder" -xdev ! -uid "$EUID" -print -quit 2>/dev/null) ]]; then
    unshare --map-root-user --map-auto find "$folder" -mindepth 1 -xdev -delete 2>/dev/null || true
  fi
  if mountpoint -q "$folder"; then find "$folder" -mindepth 1 -xdev -delete || true; else rm -rf --one-file-system "$folder" || true; fi
done
# The cgroups are empty now.
groups_of_homes | while read -r group; do rmdir "$group" 2>/dev/null || true; done

if [[ -n $added ]]; then
  if [[ $packages == yes ]]; then
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 purge $added
  else
    echo "svc: set-up had installed these Debian packages, which stay (./svc uninstall --packages would have removed them):"
    echo "    apt-get purge $added"
  fi
fi
# These folders are empty now, unless they contain other files.
[[ $alone == yes ]] || rmdir "${XDG_CONFIG_HOME:-${HOME-}/.config}/svc" "${XDG_CACHE_HOME:-${HOME-}/.cache}/svc" 2>/dev/null || true
left=()
for folder in "${targets[@]}"; do
  if mountpoint -q "$folder" && [[ -z $(ls -A "$folder") ]]; then echo "svc: $folder is a file system of its own; it is empty now and stays mounted"
  elif [[ -e $folder ]]; then left+=("$folder"); fi
done
if ((${#left[@]})); then echo "svc: could not be removed: ${left[*]}; see what is left there, and remove it as root" >&2; exit 1; fi
left=$(parts_left)
if [[ -n $left ]]; then
  echo "svc: all files are gone, but the host still has parts of sandboxes; as root, remove them by:" >&2
  sed 's/^/    /' <<<"$left" >&2
  exit 1
fi
if [[ $alone == yes ]]; then echo "svc: $SVC_HOME is gone; other homes and what set-up made are as they were"; else echo "svc: nothing of svc is left outside this folder"; fi
