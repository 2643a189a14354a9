# Reads the Debian mirrors, proxies and date checks from the host's own apt configuration.

# Prints the release name of this host if its sources have an index for it, otherwise nothing.
mirror_suite() {
  local suite
  suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME-}")
  if [[ -n $suite ]] && mirror_rows | cut -d '|' -f 2 | grep -qx "$suite"; then echo "$suite"; fi
}

# Prints SITE|RELEASE|COMPONENT of the distribution's own indexes; empty before the first `apt-get update`.
mirror_rows() {
  type -P apt-get >/dev/null || return 0
  local suite
  suite=$(. /etc/os-release 2>/dev/null && echo "${VERSION_CODENAME-}")
  apt-get indextargets --format '$(SITE)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)' 'Created-By: Packages' 2>/dev/null |
    awk -F '|' -v suite="$suite" '($4 == "Debian" || $4 == "Ubuntu") && ($2 == suite || $2 == suite "-updates" || $2 == suite "-security") { print $1 "|" $2 "|" $3 }' | LC_ALL=C sort -u
}

# Prints the same as lines of a sources.list; unsigned sources are trusted only if the host itself trusts them.
mirror_lines() {
  local trusted=
  if grep -rqsiE '^[^#]*(\[[^]]*trusted=yes|^Trusted: *yes)' /etc/apt/sources.list /etc/apt/sources.list.d; then trusted='[trusted=yes] '; fi
  mirror_rows | awk -F '|' -v trusted="$trusted" '{ parts[$1 " " $2] = parts[$1 " " $2] " " $3 } END { for (key in parts) print "deb " trusted key parts[key] }' | sort
}

# Prints the host's own settings for fetching packages, as apt.conf lines.
apt_settings() {
  apt-config dump | grep -E '^Acquire::(http|https|Retries|Check-Valid-Until|Check-Date)' | grep -vE '::(User-Agent|AutoDetect|Proxy-Auto-Detect)' | sed 's/;$//' | grep -v ' ""$' || true
}
