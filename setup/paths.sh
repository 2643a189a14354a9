# The paths of everything, and checks that are cheap enough for every command; the user's variables take precedence.
source "$SVC_ROOT/setup/versions.sh"

if ((EUID == 0)); then
  : "${SVC_CACHE:=/var/cache/svc}" "${SVC_HOME:=/var/lib/svc}"
else
  : "${SVC_CACHE:=${XDG_CACHE_HOME:-$HOME/.cache}/svc}" "${SVC_HOME:=${XDG_DATA_HOME:-$HOME/.local/share}/svc}"
fi
# A relative folder would change its meaning with each cd.
[[ $SVC_CACHE == /* ]] || SVC_CACHE=$PWD/$SVC_CACHE
[[ $SVC_HOME == /* ]] || SVC_HOME=$PWD/$SVC_HOME

SVC_NODE=${SVC_NODE:-$SVC_CACHE/node/$SVC_NODE_VERSION/bin/node}
SVC_RUNSC=${SVC_RUNSC:-$SVC_CACHE/runsc/$SVC_RUNSC_VERSION-$SVC_RUNSC_TUNING/runsc}
SVC_TEMPLATES_DIR=${SVC_TEMPLATES_DIR:-$SVC_CACHE/templates}
# A key of the folder's content, computed in bash alone, since every command runs this.
python_key() {
  local sum=5381 at
  for ((at = 0; at < ${#SVC_PYTHON_PACKAGES}; at++)); do printf -v code %d "'${SVC_PYTHON_PACKAGES:at:1}"; sum=$(((sum * 33 + code) % 4294967296)); done
  printf %08x "$sum"
}
[[ -n ${SVC_PYTHON_CLIENTS-} ]] || SVC_PYTHON_CLIENTS=$SVC_CACHE/python-clients/$(python_key)
# The steps of set-up for data servers, for servers with sandboxes, and all of them.
readonly data_steps="apt-first apt node npm console native"
readonly run_steps="$data_steps go envd runsc host base"
readonly all_steps="$run_steps python-clients mooncake-newest python-engine envoy object-server"
# Benches also use peers that no test needs.
readonly bench_steps="$run_steps python-clients python-engine object-server python-peers"
# These are made by name alone (./svc setup --only STEP): they take gigabytes, and few tests need them.
readonly named_steps="python-vllm"
[[ -n ${SVC_MOONCAKE_NEWEST-} ]] || SVC_MOONCAKE_NEWEST=$SVC_CACHE/mooncake-newest/${SVC_MOONCAKE_NEWEST_PACKAGES//[^a-z0-9.]/-}
[[ -n ${SVC_PYTHON_ENGINE-} ]] || SVC_PYTHON_ENGINE=$SVC_CACHE/python-engine/${SVC_PYTHON_ENGINE_PACKAGE//[^a-z0-9.]/-}
[[ -n ${SVC_PYTHON_PEERS-} ]] || SVC_PYTHON_PEERS=$SVC_CACHE/python-peers/${SVC_PYTHON_PEER_PACKAGES//[^a-z0-9.]/-}
[[ -n ${SVC_PYTHON_VLLM-} ]] || SVC_PYTHON_VLLM=$SVC_CACHE/python-vllm/${SVC_PYTHON_ENGINE_PACKAGE//[^a-z0-9.]/-}-${SVC_PYTHON_VLLM_PACKAGES//[^a-z0-9.]/-}
[[ -n ${SVC_ENVOY-} ]] || SVC_ENVOY=$SVC_CACHE/envoy/${SVC_ENVOY_PACKAGE//[^a-z0-9.]/-}/envoy
export SVC_ROOT SVC_CACHE SVC_HOME SVC_NODE SVC_RUNSC SVC_TEMPLATES_DIR SVC_PYTHON_CLIENTS SVC_PYTHON_ENGINE SVC_PYTHON_VLLM SVC_ENVOY SVC_PYTHON_PEERS SVC_MOONCAKE_NEWEST
# An unprivileged user's PATH often lacks the folders of ip, nft and mkfs.
export PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"

# One hash of the names and contents of the given files: the key of what is built from them.
recipe_hash() { (cd "$SVC_ROOT" && find "$@" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) | sha256sum | cut -c1-16; }

# Finds envd for the present sources; sets SVC_ENVD unless the user did.
find_envd() {
  if [[ -z ${SVC_ENVD-} && -f $SVC_ROOT/packages/envd/build.sh ]]; then
    SVC_ENVD=$SVC_CACHE/envd/$(recipe_hash packages/envd)/envd
    export SVC_ENVD
  fi
}

# Finds the console's page for the present sources; sets SVC_CONSOLE unless the user did.
find_console() {
  if [[ -z ${SVC_CONSOLE-} && -f $SVC_ROOT/packages/console/build.ts ]]; then
    SVC_CONSOLE=$SVC_CACHE/console/$(recipe_hash packages/console/src packages/console/build.ts packages/console/package.json)
    export SVC_CONSOLE
  fi
}

# Finds the tests' S3-compatible server; sets SVC_OBJECT_SERVER unless the user did.
find_object_server() {
  if [[ -z ${SVC_OBJECT_SERVER-} && -d $SVC_ROOT/packages/harness/object-server ]]; then
    SVC_OBJECT_SERVER=$SVC_CACHE/object-server/$(recipe_hash packages/harness/object-server)/object-server
    export SVC_OBJECT_SERVER
  fi
}

node_present() { [[ -x $SVC_NODE && -s $SVC_NODE ]]; }

# Checks that node_modules has every package of the lock file in its version; $1 = all includes the development packages.
modules_present() {
  # npm writes this file last, so it is missing after an interrupted install.
  [[ -f $SVC_ROOT/node_modules/.package-lock.json ]] || return 1
  LC_ALL=C awk -v root="$SVC_ROOT/" -v dev="${1-}" -f "$SVC_ROOT/setup/modules.awk" "$SVC_ROOT/package-lock.json"
}

install_for() { source "$SVC_ROOT/setup/install.sh" "$1"; }

exec_node() {
  find_envd
  find_console
  # Node stores compiled sources here; if the cache is not writable, it is only slower.
  export NODE_COMPILE_CACHE=${NODE_COMPILE_CACHE-$SVC_CACHE/compile}
  export PATH="${SVC_NODE%/*}:$PATH"
  exec "$SVC_NODE" --disable-warning=ExperimentalWarning "$@"
}
