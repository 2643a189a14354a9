# Reads the Debian mirrors, proxies and date checks from the host's own apt configuration.

# The release name of this host when its sources have an index for it, else nothing.
mirror_suite() {
  local suite
  suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME-}")
  if [[ -n $suite ]] && mirror_rows | cut -d '|' -f 2 | grep -qx "$suite"; then echo "$suite"; fi
}

# SITE|RELEASE|COMPONENT of the distribution's own indexes; empty before the first `apt-get update`.
mirror_rows() {
  type -P apt-get >/dev/null || return 0
  local suite
  suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME-}")
  apt-get indextargets --format '$(SITE)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
    awk -F '|' -v suite="$suite" '($4 == "Debian" || $4 == "Ubuntu") && ($2 == suite || $2 == suite "-updates" || $2 == suite "-security") { print $1 "|" $2 "|" $3 }' | LC_ALL=C sort -u
}

# The same as lines of a sources.list; trusted without a signature only where the host itself says so.
mirror_lines() {
  local trusted=
  if grep -rqsiE '^[^#]*(\[[^]]*trusted=yes|^Trusted: *yes)' /etc/apt/sources.list /etc/apt/sources.list.d; then trusted='[trusted=yes] '; fi
  mirror_rows | awk -F '|' -v trusted="$trusted" '{ parts[$1 " " $2] = parts[$1 " " $2] " " $3 } END { for (key in parts) print "deb " trusted key parts[key] }' | sort
}

# The host's own settings about how packages are fetched, as apt.conf lines.
apt_settings() {
  apt-config dump | grep -E '^Acquire::(http|https|Retries|Check-Valid-Until|Check-Date)' | grep -vE '::(User-Agent|AutoDetect|Proxy-Auto-Detect)' | sed 's/;$//' | grep -v ' ""$' || true
}
