# Debian packages that all other steps require: certificates, and pip if there is no npm.
source "$SVC_ROOT/setup/apt.sh"

wanted() {
  if node_present; then return; fi
  if [[ $(type -P node) && $(type -P npm) ]] || python3 -m pip --version >/dev/null 2>&1; then
    missing_packages first | grep -x ca-certificates || true
  else
    missing_packages first
  fi
}

probe() { [[ -z $(wanted) ]] && ! apt_interrupted; }
refuses() { apt_refuses "$(wanted)"; }
make() { apt_install $(wanted); }
advice() { apt_advice "$(wanted)"; }
