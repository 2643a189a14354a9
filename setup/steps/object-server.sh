# The S3-compatible server that tests use, from packages/harness/object-server.
source "$SVC_ROOT/setup/go.sh"
find_object_server
needs() { echo go; }
probe() { [[ -x ${SVC_OBJECT_SERVER-} && -s $SVC_OBJECT_SERVER ]]; }
advice() { echo "the tests of object storage need it; see that a Go module proxy answers, then run ./svc setup --only go object-server"; }

make() {
  local folder=${SVC_OBJECT_SERVER%/*} making
  making=$(fresh_beside "$folder")
  use_go_to_build
  (cd "$SVC_ROOT/packages/harness/object-server" && GOWORK=off go build -trimpath -ldflags '-s -w' -o "$making/object-server" .)
  publish "$making" "$folder"
}
