# The C++ addons: each packages/*/native, built by CMake into the cache and linked as native/build.
needs() { echo npm; }
after() { echo apt; }
addons() { compgen -G "$SVC_ROOT/packages/*/native/CMakeLists.txt" || true; }
advice() { echo "the addons need g++, make and cmake; read the log above, then run ./svc setup --only apt native"; }

folder_of() { echo "$SVC_CACHE/native/$(basename "${1%/native}")-$(recipe_hash "${1#"$SVC_ROOT"/}")"; }
# The key of an addon's inputs; its tests, fuzzers and benches are built elsewhere.
recipe_hash() {
  {
    (cd "$SVC_ROOT" && find "$1" \( -path "$1/build" -o -path "$1/test" -o -path "$1/fuzz" -o -path "$1/bench" \) -prune -o -type f -print0 |
      LC_ALL=C sort -z | xargs -0 sha256sum)
    echo "$SVC_NODE_VERSION $(uname -m)"
  } | sha256sum | cut -c1-16
}
loads() { local addon=("$1"/*.node); [[ -f ${addon[0]} ]] && "$SVC_NODE" -e 'process.dlopen({ exports: {} }, process.argv[1])' "${addon[0]}"; }
lacks_bench() { [[ $SVC_SETUP_PURPOSE == bench && -d $1/bench && ! -x $(folder_of "$1")/core_bench ]]; }

# Checks whether every addon has been built, here or on another machine, so that no compiler is needed.
all_built() {
  local list
  while read -r list; do [[ -n $(compgen -G "$(folder_of "${list%/CMakeLists.txt}")/*.node") ]] || return 1; done < <(addons)
}

parts() {
  local list folder
  while read -r list; do
    folder=$(folder_of "${list%/CMakeLists.txt}")
    echo "${folder#"$SVC_CACHE"/}"
  done < <(addons)
}

# The archive of a release has its own links, since its user may not be able to write into the tree.
linked() {
  local folder
  folder=$(folder_of "$1")
  [[ $(readlink "$1/build") == "$folder" || $1/build -ef $SVC_ROOT/prebuilt/native/${folder##*/} ]]
}

probe() {
  local list source
  while read -r list; do
    source=${list%/CMakeLists.txt}
    linked "$source"
    loads "$source/build"
    ! lacks_bench "$source"
  done < <(addons)
}

make_addon() {
  local source=$1 folder making
  folder=$(folder_of "$source")
  if ! loads "$folder"; then
    making=$(fresh_beside "$folder")
    cmake -S "$source" -B "$making/objects" -DCMAKE_BUILD_TYPE=Release
    cmake --build "$making/objects" --parallel "$(nproc)"
    mv "$making"/objects/*.node "$making/"
    rm -rf "$making/objects"
    publish "$making" "$folder"
  fi
  if lacks_bench "$source"; then
    making=$(fresh_beside "$folder/core_bench")
    cmake -S "$source" -B "$making" -DCMAKE_BUILD_TYPE=Release
    cmake --build "$making" --parallel "$(nproc)" --target core_bench
    mv "$making/core_bench" "$folder/core_bench"
    rm -rf "$making"
  fi
  # If a manual build left a folder here, ln would create the link inside it.
  [[ -L $source/build ]] || rm -rf "$source/build"
  ln -sfn "$folder" "$source/build"
}

# The addons are built in parallel, since each compiles as one unit on a single processor.
make() {
  local list pid makers=() failed=0
  while read -r list; do
    (make_addon "${list%/CMakeLists.txt}") &
    makers+=($!)
  done < <(addons)
  for pid in "${makers[@]}"; do wait "$pid" || failed=1; done
  return "$failed"
}
