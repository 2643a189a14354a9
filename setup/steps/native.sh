# The C++ addons: each packages/*/native, built by CMake into the cache and linked as native/build.
needs() { echo npm; }
after() { echo apt; }
addons() { compgen -G "$SVC_ROOT/packages/*/native/CMakeLists.txt" || true; }
mend() { echo "the addons need g++, make and cmake; read the log above, then run ./svc setup --only apt native"; }

folder_of() { echo "$SVC_CACHE/native/$(basename "${1%/native}")-$(recipe_hash "${1#"$SVC_ROOT"/}" --exclude-build)"; }
recipe_hash() { (cd "$SVC_ROOT" && find "$1" -path "$1/build" -prune -o -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; echo "$SVC_NODE_VERSION $(uname -m)") | sha256sum | cut -c1-16; }

probe() {
  local list source addon
  while read -r list; do
    source=${list%/CMakeLists.txt}
    [[ $(readlink "$source/build") == "$(folder_of "$source")" ]]
    addon=$(compgen -G "$source/build/*.node" | head -n 1)
    "$SVC_NODE" -e "process.dlopen({ exports: {} }, process.argv[1])" "$addon"
  done < <(addons)
}

make() {
  local list source folder making
  while read -r list; do
    source=${list%/CMakeLists.txt}
    folder=$(folder_of "$source")
    if ! compgen -G "$folder/*.node"; then
      making=$(fresh_beside "$folder")
      cmake -S "$source" -B "$making" -DCMAKE_BUILD_TYPE=Release
      cmake --build "$making" --parallel "$(nproc)"
      publish "$making" "$folder"
    fi
    # A build made by hand in its place would take the link into itself.
    [[ -L $source/build ]] || rm -rf "$source/build"
    ln -sfn "$folder" "$source/build"
  done < <(addons)
}
