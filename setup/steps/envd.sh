# envd, the agent inside each sandbox, built from packages/envd.
source "$SVC_ROOT/setup/go.sh"
find_envd
needs() { echo go; }
probe() { [[ -x ${SVC_ENVD-} && -s $SVC_ENVD ]] && "$SVC_ENVD" --version; }
refuses() { [[ ! -f $SVC_ROOT/packages/envd/build.sh ]] && echo "this tree has no packages/envd/build.sh"; }
advice() { echo "no sandbox starts without envd; see that a Go module proxy answers, then run ./svc setup --only go envd"; }

parts() { [[ $SVC_ENVD != "$SVC_CACHE"/* ]] || echo "envd/$(basename "${SVC_ENVD%/*}")"; }

make() {
  local folder=${SVC_ENVD%/*} making
  making=$(fresh_beside "$folder")
  use_go_to_build
  "$SVC_ROOT/packages/envd/build.sh" "$making/envd"
  publish "$making" "$folder"
  # Each edit of the sources creates a folder; only the last few and recent ones are kept.
  ls -dt "$SVC_CACHE"/envd/*/ | tail -n +5 | while read -r folder; do find "$folder" -maxdepth 0 -mtime +0 -exec rm -rf {} +; done
}
