# `./svc setup`: makes everything now, or only the named steps, and tries again what failed before. Sourced by `svc`.
readonly all_steps="apt-first apt node npm native go envd runsc host base python-clients"

setup_help() {
  cat <<TEXT
Usage: ./svc setup [--only STEP…]
Installs and builds what the commands need, into $SVC_CACHE; what is there already is left as it is.
Steps: $all_steps
TEXT
}

chosen=()
while (($#)); do
  case $1 in
    -h | --help) setup_help; exit 0 ;;
    --only) shift; (($#)) || { echo "svc: --only asks for the name of a step: $all_steps" >&2; exit 2; }
      while (($#)) && [[ $1 != -* ]]; do
        [[ " $all_steps " == *" $1 "* ]] || { echo "svc: there is no step named $1; the steps are: $all_steps" >&2; exit 2; }
        chosen+=("$1"); shift
      done ;;
    *) echo "svc: setup knows no option $1; see ./svc setup --help" >&2; exit 2 ;;
  esac
done

SVC_SETUP_RETRY=yes
if ((${#chosen[@]})); then
  source "$SVC_ROOT/setup/install.sh" only "${chosen[@]}"
else
  source "$SVC_ROOT/setup/install.sh" setup
fi
if [[ ${setup_failed-} == yes ]]; then echo "svc: set-up ended with failures, named above" >&2; exit 1; fi
echo "svc: everything is in place in $SVC_CACHE"
