# The npm packages of the tree, without their install scripts; tests and benches need the development ones too.
needs() { echo node; }
kind() { case $SVC_SETUP_PURPOSE in test | bench) echo all ;; esac; }
probe() { modules_present "$(kind)"; }
mend() { echo "set-up ran npm ci in $SVC_ROOT; see that a registry answers (npm ping) and that the folder can be written, then run ./svc again"; }

make() {
  export PATH="${SVC_NODE%/*}:$PATH"
  # Node trusts its own list alone unless told of the host's authorities.
  export NODE_USE_SYSTEM_CA=1
  cd "$SVC_ROOT"
  local options=(--ignore-scripts --no-audit --no-fund)
  [[ $(kind) == all ]] || options+=(--omit=dev)
  npm ci "${options[@]}" || without_foreign_packages
}

# A lock file written where the registry lacks other platforms' packages lists none of them, and `npm ci` refuses it;
# `npm install` takes the versions of the same lock file and leaves those packages out.
without_foreign_packages() {
  cp package-lock.json "$SVC_CACHE/.package-lock.json"
  local code=0
  npm install --no-save "${options[@]}" || code=$?
  cmp -s package-lock.json "$SVC_CACHE/.package-lock.json" || cp "$SVC_CACHE/.package-lock.json" package-lock.json
  rm -f "$SVC_CACHE/.package-lock.json"
  return $code
}
