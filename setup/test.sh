# `./svc test [NAME…]`: installs what the tests need, then runs test/run.ts. Sourced by `svc`.
source "$SVC_ROOT/setup/words.sh"
check_words test "$@"
if [[ ! -f $SVC_ROOT/test/run.ts ]]; then echo "svc: this is a release, which comes without its tests; run ./svc test in a clone" >&2; exit 1; fi
if [[ " $* " != *" --help "* && " $* " != *" -h "* ]]; then
  install_for test
  find_object_server
  source "$SVC_ROOT/setup/go.sh"
  # The Go checks share set-up's caches; without a suitable Go the runner reports them as skipped, and fails in CI.
  if find_go >/dev/null; then
    use_go
    export SVC_GO=$GO
  fi
elif ! node_present; then
  install_for client
fi
export SVC_TEST_LOGS=${SVC_TEST_LOGS:-$SVC_CACHE/logs/test}
exec_node "$SVC_ROOT/test/run.ts" "$@"
