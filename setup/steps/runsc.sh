# gVisor's runsc, built from the pinned module version through the Go module proxy.
source "$SVC_ROOT/setup/go.sh"
needs() { echo go; }
# `runsc --version` says nothing of the version; the folder's name and the module inside the binary do.
probe() { "$SVC_RUNSC" --version; }
mend() { echo "without runsc the gVisor driver is off and ./svc goes on with runc or bubblewrap; see that a Go module proxy answers, then run ./svc setup --only go runsc"; }

make() {
  local folder=$SVC_CACHE/runsc/$SVC_RUNSC_VERSION making
  [[ $SVC_RUNSC == "$folder/runsc" ]] || { echo "SVC_RUNSC names $SVC_RUNSC, which does not run"; exit 1; }
  making=$(fresh_beside "$folder")
  use_go
  # Without CGO_ENABLED=0 every sandbox dies. Niced: the other steps are shorter, and wait for less.
  GOBIN=$making nice -n 10 "$GO" install -trimpath -ldflags "-s -w" "gvisor.dev/gvisor/runsc@$SVC_RUNSC_VERSION"
  "$GO" version -m "$making/runsc" | grep -F "$SVC_RUNSC_VERSION"
  publish "$making" "$folder"
}
