# gVisor's runsc, built from the pinned module version through the Go module proxy, with the changes of setup/runsc.
source "$SVC_ROOT/setup/go.sh"
source "$SVC_ROOT/setup/runsc/tune.sh"
needs() { echo go; }
# gVisor needs root; an ordinary user has the bubblewrap driver.
probe() { ((EUID != 0)) || "$SVC_RUNSC" --version; }
advice() { echo "without runsc the gVisor driver is off and ./svc goes on with runc or bubblewrap; see that a Go module proxy answers, then run ./svc setup --only go runsc"; }

parts() { if ((EUID == 0)); then echo "runsc/$SVC_RUNSC_VERSION-$SVC_RUNSC_TUNING"; fi; }

make() {
  local folder=$SVC_CACHE/runsc/$SVC_RUNSC_VERSION-$SVC_RUNSC_TUNING making
  [[ $SVC_RUNSC == "$folder/runsc" ]] || { echo "SVC_RUNSC names $SVC_RUNSC, which does not run"; exit 1; }
  making=$(fresh_beside "$folder")
  use_go_to_build
  fetch_runsc "$making/source"
  tune_runsc "$making/source"
  build_runsc "$making/source" "$making/runsc"
  rm -rf --one-file-system "$making/source"
  "$making/runsc" --version | grep -F "$SVC_RUNSC_VERSION-$SVC_RUNSC_TUNING"
  publish "$making" "$folder"
}
