# The npm packages of the tree, without their install scripts; tests and benches need the development ones too.
needs() { echo node; }
kind() { case $SVC_SETUP_PURPOSE in test | bench) echo all ;; esac; }
probe() { modules_present "$(kind)"; }
mend() { echo "set-up ran npm ci for $SVC_ROOT; check that a registry answers (npm ping) and that the folder can be written, then run ./svc again"; }

# Installed beside the tree's own folder and renamed into its place: servers that run keep their modules meanwhile, and
# an interrupted install changes nothing.
make() {
  export PATH="${SVC_NODE%/*}:$PATH"
  # Node trusts its own list alone unless told of the host's authorities.
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
  local options=(--ignore-scripts --no-audit --no-fund)
  [[ $(kind) == all ]] || options+=(--omit=dev)
  # A lock file written where the registry lacks other platforms' packages lists none of them, and `npm ci` refuses it;
  # `npm install` takes the versions of the same lock file and leaves those packages out.
  npm ci "${options[@]}" || npm install --no-save "${options[@]}"
  # A tree without packages has no folder.
  mkdir -p node_modules
  swap
  cd "$SVC_ROOT"
  rm -rf --one-file-system "$making"
}

# One process, so that there is next to no time between the two renames; a package's own folder goes before the tree's.
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

# What was killed between the two renames had whole new modules.
finish_swap() {
  local making=$SVC_ROOT/.making-node_modules
  if [[ ! -e $SVC_ROOT/node_modules && -d $making/old/node_modules && -d $making/node_modules ]]; then mv -T "$making/node_modules" "$SVC_ROOT/node_modules"; fi
}
