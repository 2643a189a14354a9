# Debian packages for the runtimes, the network and the templates (not for data servers), and those of the tests if tests run.
source "$SVC_ROOT/setup/apt.sh"

groups() {
  echo data
  [[ $SVC_SETUP_PURPOSE == data ]] || echo run
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

parts() { if type -P apt-get >/dev/null; then packed_debs; fi; }

# Packs the package files that a command needs with all their dependencies, since the other machine may have none of them.
pack() {
  type -P apt-get >/dev/null || return 0
  local folder making file
  folder=$SVC_CACHE/$(packed_debs)
  [[ ! -d $folder ]] || return 0
  making=$(fresh_beside "$folder")
  mkdir -p "$making/partial"
  : >"$making/status"
  run_apt -o "Dir::State::status=$making/status" -o "Dir::Cache::archives=$making" -o Dir::Cache::pkgcache= -o APT::Sandbox::User=root \
    install --download-only --no-install-recommends $(packages_of run data)
  rm -rf "$making/partial" "$making/status" "$making/lock"
  for file in "$making"/*.deb; do
    dpkg-deb --field "$file"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${file##*/}" "$(stat -c %s "$file")" "$(sha256sum <"$file" | cut -d ' ' -f 1)"
  done >"$making/Packages"
  publish "$making" "$folder"
}
