# Mooncake's newest client, beside the release that the other tests use: two releases cannot share a folder.
# Its wheel is built for CUDA. It moves bytes over TCP without a GPU, but loads the driver's library, which a host without one lacks: a
# stub that answers "no device" to each call (100, CUDA_ERROR_NO_DEVICE) stands in for it.
source "$SVC_ROOT/setup/python.sh"
after() { echo apt-first apt; }
probe() { LD_LIBRARY_PATH=$SVC_MOONCAKE_NEWEST/lib python_imports "$SVC_MOONCAKE_NEWEST" mooncake.store; }
refuses() { ! python3 -m pip --version >/dev/null 2>&1 && echo "no pip here, so the tests with Mooncake's newest client are skipped"; }
advice() { echo "the tests with Mooncake's newest client need it, cc and nm; see that pip reaches a package index, then run ./svc setup --only mooncake-newest"; }

make() {
  local making
  making=$(fresh_beside "$SVC_MOONCAKE_NEWEST")
  PIP_USER=0 python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --target "$making" $SVC_MOONCAKE_NEWEST_PACKAGES
  mkdir "$making/lib"
  cp "$making"/nvidia/*/lib/libcudart.so.* "$making/lib/"
  nm -D --undefined-only "$making"/mooncake/*.so 2>/dev/null | awk '$NF ~ /^cu[A-Z]/ { sub(/@.*/, "", $NF); print "int " $NF "(void) { return 100; }" }' |
    sort -u | cc -shared -fPIC -x c - -o "$making/lib/libcuda.so.1" -Wl,-soname,libcuda.so.1
  publish "$making" "$SVC_MOONCAKE_NEWEST"
}
