# Python packages that only benches use for comparison; a bench without them omits their rows.
source "$SVC_ROOT/setup/python.sh"
after() { echo apt-first; }
probe() { python_imports "$SVC_PYTHON_PEERS" nixl_cu12._api,sglang_router.router,vllm_router.router; }
refuses() { ! python3 -m pip --version >/dev/null 2>&1 && echo "no pip here, so the rows of the benches that compare with NIXL and with other routers are left out"; }
advice() { echo "the benches of transfer and router compare with them; see that pip reaches a package index, then run ./svc setup --only python-peers"; }

make() {
  local making
  making=$(fresh_beside "$SVC_PYTHON_PEERS")
  PIP_USER=0 python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --target "$making" $SVC_PYTHON_PEER_PACKAGES
  publish "$making" "$SVC_PYTHON_PEERS"
}
