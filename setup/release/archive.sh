# The archive of a release: what git tracks, and everything that set-up would make, as setup/prebuilt.sh takes it in. Sourced by release.sh
# and by its test.

# The Debian releases on which an archive needs no mirror, if the mirror of this host serves both. Programs that were built on the oldest one
# run on later ones, so releases are built there.
readonly archive_suites="bookworm trixie"

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
    SVC_PACK_SUITES=$archive_suites packed_step "$step" pack >"$SVC_CACHE/logs/release-$step.log" 2>&1 ||
      { printf 'svc: release: %s could not be packed; see %s\n' "$step" "$SVC_CACHE/logs/release-$step.log" >&2; return 1; }
    for part in $(SVC_PACK_SUITES=$archive_suites packed_step "$step" parts); do
      if [[ ! -d $SVC_CACHE/$part ]]; then
        printf 'svc: release: %s lacks %s; see %s\n' "$step" "$part" "$SVC_CACHE/logs/release-$step.log" >&2
        # Without the package files of the other Debian release, a machine with that release needs a mirror.
        [[ $part == debs/* && $step == apt && -n $(compgen -G "$tree/prebuilt/debs/*") ]] && continue
        return 1
      fi
      mkdir -p "$tree/prebuilt/${part%/*}"
      # Copies, not links: a node that starts meanwhile links a program into its home, and tar would see another time on the inode.
      if [[ $step == npm ]]; then cp -a "$SVC_CACHE/$part/." "$tree/"; else cp -a "$SVC_CACHE/$part" "$tree/prebuilt/$part"; fi
    done
  done
  neutral_base "$tree/prebuilt/templates"
  link_addons "$tree"
  cp "$tree/COMMIT" "$tree/prebuilt/complete"
  mkdir -p "$out"
  # `svc` comes after what it reads, and the sign of a complete archive comes last.
  (cd "$stage" && {
    printf '%s\n' "svc-$version" "svc-$version/COMMIT" "svc-$version/prebuilt"
    find "svc-$version/setup" "svc-$version/svc"
    find "svc-$version" -mindepth 1 ! -path "svc-$version/COMMIT" ! -path "svc-$version/prebuilt" ! -path "svc-$version/prebuilt/complete" ! -path "svc-$version/svc" ! -path "svc-$version/setup*"
    echo "svc-$version/prebuilt/complete"
  }) >"$stage/members"
  tar --create --numeric-owner --xattrs --xattrs-include='*' --directory "$stage" --no-recursion --files-from "$stage/members" | gzip -6 >"$out/$name.tar.gz.making"
  mv "$out/$name.tar.gz.making" "$out/$name.tar.gz"
  rm -rf --one-file-system "$stage"
  trap - EXIT
  printf 'svc: release: %s, %s MB\n' "$out/$name.tar.gz" "$(du -m "$out/$name.tar.gz" | cut -f 1)" >&2
}

packed_step() { SVC_SETUP_PURPOSE=run bash -euo pipefail "$SVC_ROOT/setup/step.sh" "$@"; }

# Makes the base template in $1 one for any machine: without this machine's own authorities, and without device files, which only root may
# unpack. The template gets a name of its own.
neutral_base() {
  local folder rootfs name key
  for folder in "$1"/base-*; do
    rootfs=$folder/rootfs
    key=$(printf 'archive %s' "${folder##*/base-}" | sha256sum | cut -c1-16)
    find "$rootfs/dev" -mindepth 1 -delete
    find "$rootfs/usr/local/share/ca-certificates" -mindepth 1 -delete
    while read -r name; do cat "$rootfs/usr/share/ca-certificates/$name"; done < <(grep '^[^#!]' "$rootfs/etc/ca-certificates.conf") >"$rootfs/etc/ssl/certs/ca-certificates.crt"
    sed -i "s/\"recipe\": \"[^\"]*\"/\"recipe\": \"$key\"/" "$folder/template.json"
    mv -T "$folder" "$1/base-$key"
  done
}

# The addons are loaded from the tree itself, which its user may not be able to write.
link_addons() {
  local folder name
  for folder in "$1"/prebuilt/native/*; do
    name=${folder##*/}
    ln -sfn "../../../prebuilt/native/$name" "$1/packages/${name%-*}/native/build"
  done
}
