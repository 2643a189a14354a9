# Python packages that only benches use for comparison; a bench without them omits their rows.
source "$SVC_ROOT/setup/python.sh"
after() { echo apt-first; }
probe() { python_imports "$SVC_PYTHON_PEERS" nixl_cu12._api; }
refuses() { ! python3 -m pip --version >/dev/null 2>&1 && echo "no pip here, so the rows of the benches that compare with NIXL are left out"; }
advice() { echo "the transfer bench compares with NIXL; see that pip reaches a package index, then run ./svc setup --only python-peers"; }

make() {
  local making
  making=$(fresh_beside "$SVC_PYTHON_PEERS")
  PIP_USER=0 python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --target "$making" $SVC_PYTHON_PEER_PACKAGES
  publish "$making" "$SVC_PYTHON_PEERS"
}
