# Chooses the Go for builds: a suitable one of the host, or the one that set-up fetched. Its caches are outside the tree.

# True if version $1 is not older than $2.
version_fits() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1) == "$2" ]]; }

# The newest of the Go versions that runsc and envd require.
go_wanted() {
  { echo "$SVC_RUNSC_GO"; sed -n 's/^go \([0-9.]*\).*/\1/p' "$SVC_ROOT/packages/envd/go.mod" 2>/dev/null || true; } | sort -V | tail -n 1
}

# Prints the path of a suitable Go, or fails.
find_go() {
  local wanted candidate version
  wanted=$(go_wanted)
  for candidate in "$SVC_CACHE/go/$SVC_GO_VERSION/bin/go" "$(type -P go || true)" /usr/local/go/bin/go /usr/lib/go/bin/go; do
    [[ -x $candidate ]] || continue
    version=$(GOTOOLCHAIN=local "$candidate" env GOVERSION 2>/dev/null) || continue
    if version_fits "${version#go}" "$wanted"; then echo "$candidate"; return; fi
  done
  return 1
}

use_go() {
  GO=$(find_go)
  # The module folders are writable, so that uninstall can remove them; git is disabled, because it may distrust the tree's owner.
  export GOCACHE=$SVC_CACHE/gocache GOMODCACHE=$SVC_CACHE/gomod GOFLAGS='-modcacherw -buildvcs=false -gcflags=all=-dwarf=false' GOTOOLCHAIN=local CGO_ENABLED=0
  export PATH="${GO%/*}:$PATH"
}

# For builds only: the compiler runs for seconds, and a sixth of that would be garbage collection.
use_go_to_build() {
  use_go
  export GOGC=off GOMEMLIMIT=1GiB
}
