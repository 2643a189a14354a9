# `./svc setup --import FILE`: imports the parts of an export that this tree needs. Sourced by `setup.sh`; $1 is FILE, or -.

export SVC_SETUP_PURPOSE=run
step() { bash -euo pipefail "$SVC_ROOT/setup/step.sh" "$@"; }
say() { printf 'svc: %s\n' "$*" >&2; }

source=$1
if [[ $source != - && ! -r $source ]]; then say "import: $source is not there, or may not be read"; exit 2; fi
if ! mkdir -p "$SVC_CACHE/logs" "$SVC_CACHE/locks" 2>/dev/null; then say "import: set-up needs a cache in $SVC_CACHE, which $(id -un) cannot write; set SVC_CACHE to a folder of yours"; exit 1; fi
exec 8>"$SVC_CACHE/locks/import.lock"
flock -w 600 8 || { say "import: another import has gone on for ten minutes; try again when it has ended"; exit 1; }
rm -rf --one-file-system "$SVC_CACHE"/.making-import-*

work=$SVC_CACHE/.making-import-$$
trap 'rm -rf --one-file-system "$work"' EXIT
mkdir "$work"
refuse() { say "import: $*; nothing was taken in"; exit 1; }

wanted=" $(for name in $run_steps; do step "$name" parts; done | tr '\n' ' ')"
# All parts are checked against the manifest before any is imported.
SVC_IMPORT=$work SVC_WANTED=$wanted tar --extract --file "$source" --directory "$work" --no-same-owner \
  --to-command='bash -euo pipefail "$SVC_ROOT/setup/import-member.sh"' 2>"$work/errors" ||
  refuse "$source is not a whole export ($(tail -n 1 "$work/errors"))"
[[ ! -e $work/refused ]] || refuse "$source $(<"$work/refused")"
[[ -f $work/manifest ]] || refuse "$source is not an export of svc, or one of a later version"
paths=()
while read -r _ sum path; do
  paths+=("$path")
  number=${#paths[@]}
  # I33: only parts with the manifest's checksums are taken in.
  [[ -f $work/$number.sum && $(cut -d ' ' -f 1 "$work/$number.sum") == "$sum" ]] || refuse "$path in $source is damaged: its checksum is not that of the manifest"
  [[ ! -e $work/$number.error ]] || refuse "$path could not be unpacked ($(tail -n 1 "$work/$number.error"))"
done < <(grep '^part ' "$work/manifest")
count=${#paths[@]}
((count)) || refuse "$source holds nothing"

taken=0
for ((at = 0; at < count; at++)); do
  path=${paths[at]}
  if [[ $wanted != *" $path "* ]]; then say "import: $path is not what this tree and machine use, and is left out"; continue; fi
  # The part already existed, or another set-up has imported it meanwhile.
  if [[ ! -d $work/$((at + 1)) || -e $SVC_CACHE/$path ]]; then continue; fi
  mkdir -p "$SVC_CACHE/${path%/*}"
  mv -T "$work/$((at + 1))/$path" "$SVC_CACHE/$path"
  taken=$((taken + 1))
done
say "import: $taken of $count parts taken in"
