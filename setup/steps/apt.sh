# Debian packages for the runtimes, the network and the templates (not for data servers), and those of the tests if tests run.
source "$SVC_ROOT/setup/apt.sh"
source "$SVC_ROOT/setup/mirrors.sh"

groups() {
  echo data
  [[ $SVC_SETUP_PURPOSE == data ]] || run_groups
  case $SVC_SETUP_PURPOSE in test | bench) echo "$SVC_SETUP_PURPOSE" ;; esac
  # A compiler is only needed for addons that have not been built yet.
  bash -euo pipefail "$SVC_ROOT/setup/step.sh" native all_built || echo native
}
wanted() { missing_packages $(groups); }

# apt-first holds dpkg's lock and fetches the lists, so running both at once would only wait.
after() { echo apt-first; }
probe() { [[ -z $(wanted) ]] && ! apt_interrupted; }
refuses() { apt_refuses "$(wanted)"; }
make() { apt_install $(wanted); }
advice() { apt_advice "$(wanted)"; }

# The releases of the system whose package files are packed: the host's, or those that the archive of a release names.
suites() {
  if [[ $(. /etc/os-release && echo "$ID") == debian ]]; then echo "${SVC_PACK_SUITES:-$(host_suite)}"; else host_suite; fi
}

parts() {
  local suite
  if type -P apt-get >/dev/null; then for suite in $(suites); do packed_debs "$suite"; done; fi
}

# Packs the package files that a command needs with all their dependencies, since the other machine may have none of them.
pack() {
  local suite
  type -P apt-get >/dev/null || return 0
  for suite in $(suites); do
    [[ -d $SVC_CACHE/$(packed_debs "$suite") ]] || pack_suite "$suite"
  done
}

pack_suite() {
  local suite=$1 own folder making file options
  own=$(host_suite)
  folder=$SVC_CACHE/$(packed_debs "$suite")
  making=$(fresh_beside "$folder")
  mkdir -p "$making/partial"
  : >"$making/status"
  options=(-o "Dir::State::status=$making/status" -o "Dir::Cache::archives=$making" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  if [[ $suite != "$own" ]]; then
    mkdir -p "$making/lists/partial"
    mirror_lines | sed -E "s, $own(-[a-z]+)? , $suite\\1 ," >"$making/sources.list"
    options+=(-o "Dir::Etc::SourceList=$making/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$making/lists")
    # A mirror that lacks this release leaves no folder; the archive then has package files of the host's release alone.
    run_apt "${options[@]}" -o APT::Update::Error-Mode=any update || { rm -rf "$making"; return 0; }
  fi
  run_apt "${options[@]}" install --download-only --no-install-recommends $(packages_of $(run_groups) data packed)
  rm -rf "$making/partial" "$making/status" "$making/lock" "$making/lock-frontend" "$making/lists" "$making/sources.list"
  for file in "$making"/*.deb; do
    dpkg-deb --field "$file"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${file##*/}" "$(stat -c %s "$file")" "$(sha256sum <"$file" | cut -d ' ' -f 1)"
  done >"$making/Packages"
  publish "$making" "$folder"
}
