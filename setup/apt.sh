# Shared by the two apt steps: finding missing packages, installing them, and the message if that is not possible.

packages_of() { awk -v groups=" $* " 'index(groups, " " $1 " ") { print $2 }' "$SVC_ROOT/setup/packages.txt"; }

# The groups of a machine with sandboxes; a release is built with SVC_PACK_SUITES.
run_groups() { if [[ -d $SVC_ROOT/prebuilt || -n ${SVC_PACK_SUITES-} ]]; then echo run; else echo run base; fi; }

host_suite() { (. /etc/os-release && echo "${VERSION_CODENAME-}"); }

# The folder of package files for an export and an import, below the cache: the files fit one release of one system, $1 or the host's.
packed_debs() {
  echo "debs/$(. /etc/os-release && echo "$ID-${1-${VERSION_CODENAME-}}")-$(dpkg --print-architecture)-$(packages_of $(run_groups) data packed | sha256sum | cut -c1-16)"
}

# Prints the packages of the named groups whose program is missing.
missing_packages() {
  local group package proof
  while read -r group package proof; do
    [[ " $* " == *" $group "* ]] || continue
    if [[ $proof == /* ]]; then [[ -s $proof ]] && continue; else type -P "$proof" >/dev/null && continue; fi
    echo "$package"
  done <"$SVC_ROOT/setup/packages.txt"
}

apt_advice() {
  if [[ -n $1 ]]; then echo "install by hand: apt-get install --no-install-recommends" $1; fi
}

# Without root, or on a system without apt, a message says what is missing, and set-up continues with what exists.
apt_refuses() {
  if ! type -P apt-get >/dev/null; then
    echo "this system has no apt; going on without:" $1
  elif ((EUID != 0)); then
    echo "only root may install; going on without. As root: apt-get install --no-install-recommends" $1
  else
    return 1
  fi
}

run_apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 \
    -o Dpkg::Options::=--force-confold -o Dpkg::Options::=--force-confdef "$@"
}

# Installing a server package would start its server, but only tests and benches run these.
with_no_service_started() {
  local policy=/usr/sbin/policy-rc.d
  if [[ -e $policy ]]; then "$@"; return; fi
  printf '#!/bin/sh\n# svc set-up: no service is started by an installation.\nexit 101\n' >"$policy"
  chmod +x "$policy"
  local code=0
  "$@" || code=$?
  rm -f "$policy"
  return $code
}

installed_packages() { dpkg-query -W -f '${Package} ${db:Status-Status}\n' | sed -n 's/ installed$//p' | sort -u; }

# Exists while packages are being installed, and lists the packages from before. It reveals an interrupted installation, since programs are
# in place before dpkg has finished their packages.
readonly apt_begun=$SVC_CACHE/apt-begun
apt_interrupted() { ((EUID == 0)) && [[ -e $apt_begun ]]; }

# dpkg refuses to configure a package that it was unpacking when it was killed, and apt cannot install over it. Only packages of our own
# interrupted run are removed; the following install brings them again.
remove_half_installed() {
  local package
  [[ -s $apt_begun ]] || return 0
  dpkg-query -W -f '${Package} ${db:Status-Eflag}\n' | sed -n 's/ reinstreq$//p' | sort -u | comm -23 - "$apt_begun" | while read -r package; do
    echo "removing $package, which was being unpacked when set-up was killed"
    with_no_service_started dpkg --force-remove-reinstreq --force-depends --remove "$package"
  done
}

apt_install() {
  local before after bundle=/etc/ssl/certs/ca-certificates.crt kept=$SVC_CACHE/host-authorities.pem
  # The text identifies a policy file that an interrupted run left.
  if grep -qs 'svc set-up' /usr/sbin/policy-rc.d; then rm -f /usr/sbin/policy-rc.d; fi

  remove_half_installed
  with_no_service_started dpkg --configure -a || with_no_service_started run_apt --fix-broken install
  if [[ ! -s $apt_begun ]]; then
    installed_packages >"$apt_begun.new"
    mv "$apt_begun.new" "$apt_begun"
  fi
  before=$(<"$apt_begun")
  # Installing ca-certificates rewrites the bundle, which would lose authorities that were added by hand.
  if [[ -s $bundle && ! -s $kept ]] && ! grep -qx ca-certificates <<<"$before"; then cp "$bundle" "$kept"; fi

  if (($# == 0)) || install_imported "$@"; then
    :
  elif ! { have_candidates "$@" && with_no_service_started run_apt install --no-install-recommends --no-upgrade "$@"; }; then
    # A broken third-party source makes the update fail, but only the install matters here.
    run_apt update || true
    with_no_service_started run_apt install --no-install-recommends --no-upgrade --fix-missing "$@"
  fi
  after=$(installed_packages)
  # `./svc uninstall` lists or removes the packages that set-up installed.
  comm -13 <(echo "$before") <(echo "$after") >>"$SVC_CACHE/debian-packages-added"
  if [[ -s $kept ]]; then
    certificates_lacking "$bundle" "$kept" >>"$bundle"
    rm -f "$kept"
  fi
  rm -f "$apt_begun"
}

# Installs from the files of an import, as a separate source; apt verifies their checksums.
install_imported() {
  local folder=$SVC_CACHE/$(packed_debs) own=$SVC_CACHE/.apt options
  [[ -s $folder/Packages ]] || return 1
  rm -rf "$own"
  mkdir -p "$own/lists/partial"
  printf 'deb [trusted=yes] file:%s ./\n' "$folder" >"$own/sources.list"
  options=(-o "Dir::Etc::SourceList=$own/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$own/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root)
  run_apt "${options[@]}" update || return 1
  # A power cut may lose files, but apt then installs them again. Without this library dpkg waits for the disk several times a package.
  dpkg-deb --extract "$(echo "$folder"/libeatmydata1_*.deb)" "$own/unsynced"
  LD_PRELOAD=$(find "$own/unsynced" -name libeatmydata.so) \
    with_no_service_started run_apt "${options[@]}" -o Dpkg::Options::=--force-unsafe-io install --no-install-recommends --no-upgrade "$@" || return 1
  sync -f /var/lib/dpkg
  rm -rf "$own"
}

have_candidates() {
  local known
  known=$(apt-cache policy "$@" | grep -c 'Candidate: [^(]') || true
  [[ $known == "$#" ]]
}

# Prints each certificate of $2 that $1 lacks.
certificates_lacking() {
  awk '
    /-----BEGIN CERTIFICATE-----/ { inside = 1; block = "" }
    inside { block = block $0 "\n" }
    /-----END CERTIFICATE-----/ {
      inside = 0
      if (FILENAME == ARGV[1]) there[block] = 1
      else if (!(block in there)) lacking = lacking block
    }
    END { printf "%s", lacking }
  ' "$1" "$2"
}
