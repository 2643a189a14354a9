# The archive of a release: what git tracks, and a cache that holds everything prebuilt. Sourced by release.sh and by its test.

# $1: the folder for the archive; $2: the version. Needs a set-up that is complete.
build_archive() {
  local out=$1 version=$2 name tree step part
  name=svc-$version-linux-$(uname -m)
  # Not local: the trap runs after the function has ended.
  stage=$SVC_CACHE/.making-release-$$
  tree=$stage/svc-$version
  rm -rf --one-file-system "$stage"
  mkdir -p "$tree/prebuilt"
  trap 'rm -rf --one-file-system "$stage"' EXIT
  # Tests and benches need compilers and registries; a clone has them.
  git -C "$SVC_ROOT" archive HEAD | tar -x -C "$tree" --exclude='packages/*/test' --exclude='packages/harness/*/*' --exclude='packages/harness/README.md' --exclude=bench --exclude=test
  # An unpacked archive has no .git, so this file says which commit it is.
  git -C "$SVC_ROOT" rev-parse HEAD >"$tree/COMMIT"
  for step in $run_steps; do
    SVC_SETUP_PURPOSE=run bash -euo pipefail "$SVC_ROOT/setup/step.sh" "$step" pack >"$SVC_CACHE/logs/release-$step.log" 2>&1 ||
      { printf 'svc: release: %s could not be packed; see %s\n' "$step" "$SVC_CACHE/logs/release-$step.log" >&2; return 1; }
    for part in $(SVC_SETUP_PURPOSE=run bash -euo pipefail "$SVC_ROOT/setup/step.sh" "$step" parts); do
      [[ -d $SVC_CACHE/$part ]] || { [[ $step == go ]] && continue; printf 'svc: release: %s lacks %s\n' "$step" "$part" >&2; return 1; }
      mkdir -p "$tree/prebuilt/${part%/*}"
      # Copies, not links: a node that starts meanwhile links a program into its home, and tar would see another time on the inode.
      if [[ $step == npm ]]; then cp -a "$SVC_CACHE/$part/." "$tree/"; else cp -a "$SVC_CACHE/$part" "$tree/prebuilt/$part"; fi
    done
  done
  rm -rf "$tree"/prebuilt/go
  mkdir -p "$out"
  tar --create --numeric-owner --xattrs --xattrs-include='*' --directory "$stage" "svc-$version" | gzip -6 >"$out/$name.tar.gz.making"
  mv "$out/$name.tar.gz.making" "$out/$name.tar.gz"
  rm -rf --one-file-system "$stage"
  trap - EXIT
  printf 'svc: release: %s, %s MB\n' "$out/$name.tar.gz" "$(du -m "$out/$name.tar.gz" | cut -f 1)" >&2
}
