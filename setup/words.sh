# Checks the arguments of `./svc test` and `./svc bench` before anything is installed, so that a mistyped name costs nothing.

# $1 is test or bench. Exits with 2 at an argument that names nothing.
check_words() {
  local verb=$1 word takes_value=
  shift
  for word in "$@"; do
    if [[ $takes_value == yes ]]; then takes_value=; continue; fi
    case $word in
      -h | --help) return ;;
      --name) [[ $verb == test ]] || { echo "svc: $verb knows no option --name; see ./svc $verb --help" >&2; exit 2; }; takes_value=yes ;;
      --against | --pairs) [[ $verb == bench ]] || { echo "svc: $verb knows no option $word; see ./svc $verb --help" >&2; exit 2; }; takes_value=yes ;;
      -*) echo "svc: $verb knows no option $word; see ./svc $verb --help" >&2; exit 2 ;;
      *) "names_$verb" "$word" || { echo "svc: there is no $verb named $word; see ./svc $verb --help" >&2; exit 2; } ;;
    esac
  done
}

# A group or a part of a path, as test/run.ts accepts them.
names_test() {
  [[ $1 == long ]] || {
    printf '%s\n' setup checks tsc 'tsc packages/console' biome 'go vet packages/envd' 'go test packages/envd'
    cd "$SVC_ROOT" && find test packages -name node_modules -prune -o -name '*.test.ts' -print
  } | grep -F -- "${1#./}" >/dev/null
}

# A bench, or the common prefix of several.
names_bench() { compgen -G "$SVC_ROOT/bench/$1.bench.ts" || compgen -G "$SVC_ROOT/bench/$1-*.bench.ts"; } >/dev/null
