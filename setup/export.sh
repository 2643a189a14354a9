# `./svc setup --export FILE`: what set-up made here, in one file for other machines. Sourced by `setup.sh`; $1 is FILE, or - for stdout.
#
#   manifest        svc-export 1 / arch NAME / part SHA256 PATH        PATH below the cache, named by what it was made from
#   1.tar 2.tar …   one for each part

export SVC_SETUP_PURPOSE=run
step() { bash -euo pipefail "$SVC_ROOT/setup/step.sh" "$@"; }
say() { printf 'svc: %s\n' "$*" >&2; }

target=$1
[[ $target == - || $target == /* ]] || target=$PWD/$target
if [[ $target == - && -t 1 ]]; then say "export: standard output is a terminal; name a file, or pipe it on"; exit 2; fi
if [[ $target != - && ! -d ${target%/*} ]]; then say "export: there is no folder ${target%/*}"; exit 2; fi

work=$SVC_CACHE/.making-export-$$
# The file is created next to its target, with the same suffix, because tar chooses the compression by it.
making=${target%/*}/.making-$$-${target##*/}
trap 'rm -rf "$work"; rm -f "$making"' EXIT
mkdir "$work"
printf 'svc-export 1\narch %s\n' "$(uname -m)" >"$work/manifest"

# Owners are numbers, because names may differ on the other machine. A node that starts meanwhile links a program into its home; tar notices
# the inode's new time and exits with 1, so a comparison decides whether the content changed.
archive() {
  local file=$1 part=$2 status=0
  tar --create --numeric-owner --xattrs --xattrs-include='*' --file "$file" --directory "$SVC_CACHE" "$part" 2>"$work/said" || status=$?
  ((status != 1)) || { status=0; tar --compare --file "$file" --directory "$SVC_CACHE" >"$work/said" 2>&1 || status=$?; }
  ((status == 0)) && return
  cat "$work/said" >&2
  say "export: $part changed or could not be read; run the command again when nothing else writes to $SVC_CACHE"
  return 1
}

count=0 names=(manifest)
for name in $run_steps; do
  if ! step "$name" pack >"$SVC_CACHE/logs/export-$name.log" 2>&1; then
    say "export: $name could not be packed, and is made on the other machine; see $SVC_CACHE/logs/export-$name.log"
    continue
  fi
  for part in $(step "$name" parts); do
    [[ -d $SVC_CACHE/$part ]] || continue
    count=$((count + 1))
    archive "$work/$count.tar" "$part"
    printf 'part %s %s\n' "$(sha256sum <"$work/$count.tar" | cut -d ' ' -f 1)" "$part" >>"$work/manifest"
    names+=("$count.tar")
    say "export: $part, $(du -m "$work/$count.tar" | cut -f 1) MB"
  done
done

if [[ $target == - ]]; then
  tar --create --directory "$work" "${names[@]}"
else
  tar --create --auto-compress --file "$making" --directory "$work" "${names[@]}"
  mv "$making" "$target"
  say "export: $count parts in $target, $(du -m "$target" | cut -f 1) MB; on the other machine, in the same version of svc: ./svc setup --import FILE"
fi
