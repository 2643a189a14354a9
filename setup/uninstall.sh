# `./svc uninstall`: stops what runs, then removes state, cache and node_modules; Debian packages only when asked. Sourced by `svc`.

# The node's own bound for a clean stop is 10 s.
readonly stop_wait_seconds=15
agreed=no packages=no
for word in "$@"; do
  case $word in
    -h | --help)
      cat <<TEXT
Usage: ./svc uninstall [--yes] [--packages]
Stops the servers and removes the sandboxes of this machine, then $SVC_HOME, $SVC_CACHE, node_modules and the client's saved credentials.
--packages also removes the Debian packages that set-up installed; --yes does not ask.
TEXT
      exit 0
      ;;
    --yes | -y) agreed=yes ;;
    --packages) packages=yes ;;
    *) echo "svc: uninstall knows no option $word; see ./svc uninstall --help" >&2; exit 2 ;;
  esac
done

# Only folders that set-up or a server made are ours to remove.
looks_ours() {
  case $1 in
    "$SVC_CACHE") [[ -d $1/locks && -d $1/logs ]] ;;
    "$SVC_HOME") [[ -e $1/secrets || -e $1/sandboxes.db || -e $1/node.json || -e $1/up.json || -z $(ls -A "$1") ]] ;;
  esac
}

targets=()
for folder in "$SVC_HOME" "$SVC_CACHE"; do
  [[ -e $folder ]] || continue
  if looks_ours "$folder"; then targets+=("$folder"); else echo "svc: $folder does not look like a folder of svc and is left alone" >&2; fi
done
# The client's saved credentials and compiled sources; then what set-up put into the tree.
for folder in "${XDG_CONFIG_HOME:-${HOME-}/.config}/svc/credentials" "${XDG_CACHE_HOME:-${HOME-}/.cache}/svc/compiled" \
  "$SVC_ROOT/node_modules" "$SVC_ROOT/.making-node_modules" "$SVC_ROOT"/packages/*/node_modules "$SVC_ROOT"/packages/*/native/build; do
  if [[ -e $folder || -L $folder ]]; then targets+=("$folder"); fi
done

added=
if [[ -s $SVC_CACHE/debian-packages-added ]]; then added=$(sort -u "$SVC_CACHE/debian-packages-added" | tr '\n' ' '); fi

echo "svc: this stops svc on this machine, ends its sandboxes and removes:"
printf '    %s\n' "${targets[@]-nothing; there is none of it}"
if [[ $agreed == no ]]; then
  if [[ ! -t 0 ]]; then echo "svc: nothing was removed; without a terminal, say ./svc uninstall --yes" >&2; exit 1; fi
  read -r -p "Remove all this? [y/N] " answer
  [[ $answer == [yY]* ]] || { echo "svc: nothing was removed"; exit 1; }
fi

node_pid() { sed -n 's/.*"pid":\([0-9]*\).*/\1/p' "$SVC_HOME/node.json" 2>/dev/null || true; }

# A node that `up` does not look after. The file can outlive its process, and the number belong to another by now.
stop_node() {
  local pid waited=0
  pid=$(node_pid)
  [[ -n $pid && -r /proc/$pid/cmdline && $(tr '\0' ' ' <"/proc/$pid/cmdline") == *main.ts* ]] || return 0
  kill -TERM "$pid" || return 0
  while [[ -d /proc/$pid ]] && ((waited++ < stop_wait_seconds * 10)); do sleep 0.1; done
  if [[ -d /proc/$pid ]]; then kill -KILL "$pid" || true; fi
}

# Runs a program of the tree; what it says is for people only where it fails.
quietly() {
  local said
  said=$(exec_node "$@" 2>&1) || { tail -n 20 <<<"$said" >&2; return 1; }
}

# By the tree's own programs, which know every part of a sandbox; Node and its packages are brought back where they are missing.
stop_all() {
  { node_present && modules_present; } || (install_for client) || return 1
  if [[ -f $SVC_HOME/up.json ]]; then quietly "$SVC_ROOT/packages/cli/src/main.ts" down || return 1; fi
  stop_node
  # Sandboxes outlive the node on purpose; the node ends them by its own records.
  if [[ -f $SVC_HOME/sandboxes.db ]]; then quietly "$SVC_ROOT/packages/sandbox/src/node/main.ts" --destroy-all --home="$SVC_HOME" || return 1; fi
}

# Whether a server or a sandbox of the home is left: a process that names it, or a mount below it.
something_lives() {
  grep -aqsF "$SVC_HOME" $(compgen -G '/proc/[0-9]*/cmdline' | grep -v "^/proc/$$/") && return
  awk -v under="$SVC_HOME/" 'index($2, under) == 1 { found = 1 } END { exit !found }' /proc/mounts
}

if [[ -f $SVC_HOME/up.json || -f $SVC_HOME/sandboxes.db ]]; then
  if ! stop_all && { stop_node; something_lives; }; then
    echo "svc: servers or sandboxes of $SVC_HOME could not be ended, so nothing was removed; see above, then run ./svc uninstall again" >&2
    exit 1
  fi
fi

for folder in "${targets[@]}"; do
  # A mount left below would have its contents deleted with the folder.
  while read -r mount; do umount -l "$mount" || true; done < <(awk -v under="$folder/" 'index($2, under) == 1 { print $2 }' /proc/mounts | sort -r)
  if ((EUID != 0)); then chmod -R u+rwX "$folder" 2>/dev/null || true; fi
  rm -rf --one-file-system "$folder"
done

if [[ -n $added ]]; then
  if [[ $packages == yes ]]; then
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 purge $added
  else
    echo "svc: set-up had installed these Debian packages, which stay (./svc uninstall --packages would have removed them):"
    echo "    apt-get purge $added"
  fi
fi
# Empty now, unless something else lies there.
rmdir "${XDG_CONFIG_HOME:-${HOME-}/.config}/svc" "${XDG_CACHE_HOME:-${HOME-}/.cache}/svc" 2>/dev/null || true
left=()
for folder in "${targets[@]}"; do if [[ -e $folder ]]; then left+=("$folder"); fi; done
if ((${#left[@]})); then echo "svc: could not be removed: ${left[*]}" >&2; exit 1; fi
echo "svc: nothing of svc is left outside this folder"
