# The console's page, bundled from packages/console; servers read it from the cache.
find_console
needs() { echo npm; }
probe() { [[ -s ${SVC_CONSOLE-}/index.html ]]; }
refuses() { [[ ! -f $SVC_ROOT/packages/console/build.ts ]] && echo "this tree has no packages/console/build.ts"; }
advice() { echo "servers run without their page at /console; run ./svc setup --only npm console"; }

parts() { [[ $SVC_CONSOLE != "$SVC_CACHE"/* ]] || echo "console/${SVC_CONSOLE##*/}"; }

make() {
  local making
  making=$(fresh_beside "$SVC_CONSOLE")
  "$SVC_NODE" --disable-warning=ExperimentalWarning "$SVC_ROOT/packages/console/build.ts" "$making"
  publish "$making" "$SVC_CONSOLE"
  # Each edit of the sources creates a folder; only the last few and recent ones are kept.
  ls -dt "$SVC_CACHE"/console/*/ | tail -n +5 | while read -r folder; do find "$folder" -maxdepth 0 -mtime +0 -exec rm -rf {} +; done
}
