# vLLM's own Python files, unpacked from its package and never installed: tests drive its cache's bookkeeping beside the indexer's.
source "$SVC_ROOT/setup/python.sh"
after() { echo apt-first; }
probe() { [[ -f $SVC_PYTHON_ENGINE/vllm/v1/core/kv_cache_manager.py ]]; }
refuses() { ! python3 -m pip --version >/dev/null 2>&1 && echo "no pip here, so the tests that compare the indexer with vLLM's classes are skipped"; }
advice() { echo "tests compare the indexer with vLLM's classes; see that pip reaches a package index, then run ./svc setup --only python-engine"; }

# The package has 130 MB, of which the Python files are a third: the rest goes.
make() {
  local making
  making=$(fresh_beside "$SVC_PYTHON_ENGINE")
  python3 -m pip download --quiet --no-cache-dir --disable-pip-version-check --no-deps --python-version 3.12 --only-binary :all: \
    --dest "$making" $SVC_PYTHON_ENGINE_PACKAGE
  python3 - "$making" <<'PYTHON'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
for wheel in list(folder.glob("*.whl")):
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder, [name for name in packed.namelist() if name.endswith(".py")])
    wheel.unlink()
PYTHON
  publish "$making" "$SVC_PYTHON_ENGINE"
}
