# `./svc setup`: runs all steps now, or only the named ones, including those that failed before. Sourced by `svc`.

setup_help() {
  cat <<TEXT
Usage: ./svc setup [--only STEP… | --export FILE | --import FILE]
Installs and builds what the commands need, into $SVC_CACHE; what is there already is left as it is.
  --only STEP…    the named steps alone: $all_steps $named_steps
  --export FILE   writes what is finished here into FILE (- for stdout; compressed where it ends in .gz, .xz or .zst)
  --import FILE   takes it in on another machine with the same version of svc: checked, and nothing built again.
                  It holds programs that run as root: take it only from whom you trust.
TEXT
}

chosen=() exported= imported=
while (($#)); do
  case $1 in
    -h | --help) setup_help; exit 0 ;;
    --only) shift; (($#)) || { echo "svc: --only asks for the name of a step: $all_steps $named_steps" >&2; exit 2; }
      while (($#)) && [[ $1 != -* ]]; do
        [[ " $all_steps $bench_steps $named_steps " == *" $1 "* ]] || { echo "svc: there is no step named $1; the steps are: $all_steps $named_steps" >&2; exit 2; }
        chosen+=("$1"); shift
      done ;;
    --export | --import)
      [[ $# == 2 && -n $2 && ${#chosen[@]} == 0 && -z $exported$imported ]] || { echo "svc: $1 asks for one FILE, and stands alone" >&2; exit 2; }
      if [[ $1 == --export ]]; then exported=$2; else imported=$2; fi
      shift 2 ;;
    *) echo "svc: setup knows no option $1; see ./svc setup --help" >&2; exit 2 ;;
  esac
done

SVC_SETUP_RETRY=yes
if [[ -n $imported ]]; then (source "$SVC_ROOT/setup/import.sh" "$imported"); fi
if [[ -n $exported$imported ]]; then
  source "$SVC_ROOT/setup/install.sh" run
elif ((${#chosen[@]})); then
  source "$SVC_ROOT/setup/install.sh" only "${chosen[@]}"
else
  source "$SVC_ROOT/setup/install.sh" setup
fi
if [[ ${setup_failed-} == yes ]]; then echo "svc: set-up ended with failures, named above" >&2; exit 1; fi
if [[ -n $exported ]]; then (source "$SVC_ROOT/setup/export.sh" "$exported"); else echo "svc: everything is in place in $SVC_CACHE"; fi
