# The npm packages of the tree, without their install scripts; tests and benches also need the development packages.
needs() { echo node; }
kind() { case $SVC_SETUP_PURPOSE in test | bench) echo all ;; esac; }
probe() { modules_present "$(kind)"; }
# The packages that a user needs, packed for an export; an import unpacks them instead of fetching.
packed() { echo "npm/$(sha256sum <"$SVC_ROOT/package-lock.json" | cut -c1-16)"; }
parts() { packed; }
advice() { echo "set-up ran npm ci for $SVC_ROOT; check that a registry answers (npm ping) and that the folder can be written, then run ./svc again"; }

# Installs next to the tree's own folder and renames: running servers keep their modules meanwhile, and an interrupted install changes
# nothing.
make() {
  export PATH="${SVC_NODE%/*}:$PATH"
  # Without this variable Node trusts only its built-in authorities, not the host's.
  export NODE_USE_SYSTEM_CA=1
  local making file
  finish_swap
  if probe; then return; fi
  making=$(fresh_beside "$SVC_ROOT/node_modules")
  cd "$SVC_ROOT"
  for file in package.json package-lock.json .npmrc packages/*/package.json; do
    if [[ -f $file ]]; then mkdir -p "$making/$(dirname "$file")" && cp "$file" "$making/$file"; fi
  done
  cd "$making"
  local options=(--ignore-scripts --no-audit --no-fund) imported
  imported=$SVC_CACHE/$(cd "$SVC_ROOT" && packed)
  if [[ -d $imported && $(kind) != all ]]; then
    cp -a "$imported/." .
    swap
    cd "$SVC_ROOT"
    rm -rf --one-file-system "$making"
    return
  fi
  [[ $(kind) == all ]] || options+=(--omit=dev)
  # If the registry lacks other platforms' packages, a lock file written there omits them, and `npm ci` refuses it. `npm install` uses the
  # versions of the same lock file and skips those packages.
  npm ci "${options[@]}" || npm install --no-save "${options[@]}"
  # A tree without packages has no such folder.
  mkdir -p node_modules
  swap
  cd "$SVC_ROOT"
  rm -rf --one-file-system "$making"
}

# A single process keeps the time between the two renames minimal; each package's own folder is renamed before the tree's.
swap() {
  "$SVC_NODE" -e '
    const { existsSync, mkdirSync, readdirSync, renameSync } = require("node:fs");
    const [tree, making] = process.argv.slice(1);
    const own = existsSync(`${tree}/packages`) ? readdirSync(`${tree}/packages`).map((name) => `packages/${name}/node_modules`) : [];
    for (const path of [...own, "node_modules"]) {
      mkdirSync(`${making}/old/${path}/..`, { recursive: true });
      if (existsSync(`${tree}/${path}`)) renameSync(`${tree}/${path}`, `${making}/old/${path}`);
      if (existsSync(`${making}/${path}`)) renameSync(`${making}/${path}`, `${tree}/${path}`);
    }
  ' "$SVC_ROOT" "$PWD"
}

pack() {
  local folder making path
  folder=$SVC_CACHE/$(packed)
  [[ ! -d $folder ]] || return 0
  making=$(fresh_beside "$folder")
  cd "$SVC_ROOT"
  # Links to the packages of the tree are relative, so they fit any tree.
  for path in node_modules packages/*/node_modules; do
    if [[ -d $path ]]; then mkdir -p "$making/$(dirname "$path")" && cp -a "$path" "$making/$path"; fi
  done
  for path in package.json package-lock.json packages/*/package.json; do mkdir -p "$making/$(dirname "$path")" && cp "$path" "$making/$path"; done
  (cd "$making" && PATH="${SVC_NODE%/*}:$PATH" npm prune --omit=dev --ignore-scripts --offline --no-audit --no-fund)
  (cd "$making" && rm -f package.json package-lock.json packages/*/package.json && find packages -type d -empty -delete)
  publish "$making" "$folder"
}

# A run that was killed between the two renames has complete new modules, which are put into place.
finish_swap() {
  local making=$SVC_ROOT/.making-node_modules
  if [[ ! -e $SVC_ROOT/node_modules && -d $making/old/node_modules && -d $making/node_modules ]]; then mv -T "$making/node_modules" "$SVC_ROOT/node_modules"; fi
}
