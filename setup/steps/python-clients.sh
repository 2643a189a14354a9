# Unmodified Python SDKs, publishers and engines (E2B, vLLM's event format, Mooncake), which tests use as clients and peers.
source "$SVC_ROOT/setup/python.sh"
after() { echo apt-first; }
probe() { python_imports "$SVC_PYTHON_CLIENTS" e2b,e2b_code_interpreter,msgspec,zmq,xxhash,mooncake,agents; }
refuses() { ! python3 -m pip --version >/dev/null 2>&1 && echo "no pip here, so the tests that use the Python SDKs are skipped"; }
advice() { echo "the tests that use the Python SDKs need them; see that pip reaches a package index, then run ./svc setup --only python-clients"; }

make() {
  local making
  making=$(fresh_beside "$SVC_PYTHON_CLIENTS")
  PIP_USER=0 python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --target "$making" \
    $SVC_PYTHON_PACKAGES
  publish "$making" "$SVC_PYTHON_CLIENTS"
}
