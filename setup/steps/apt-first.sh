# Debian packages that all other steps require: certificates, pip if there is no npm, and `patch` for runsc's source.
source "$SVC_ROOT/setup/apt.sh"

wanted() {
  # gVisor needs root, and what only serves data needs no gVisor.
  if ((EUID == 0)) && [[ ${SVC_SETUP_PURPOSE-} != data ]] && [[ ! -x $SVC_RUNSC ]]; then missing_packages runsc; fi
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
