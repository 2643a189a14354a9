# Debian packages that the runtimes, the network and the templates use, and those of the tests where tests run.
source "$SVC_ROOT/setup/apt.sh"

groups() {
  echo run
  case $SVC_SETUP_PURPOSE in test | bench) echo "$SVC_SETUP_PURPOSE" ;; esac
  if compgen -G "$SVC_ROOT/packages/*/native/CMakeLists.txt" >/dev/null; then echo native; fi
}
wanted() { missing_packages $(groups); }

# apt-first holds dpkg's lock and fetches the lists; two at once would only wait for each other.
after() { echo apt-first; }
probe() { [[ -z $(wanted) ]]; }
refuses() { apt_refuses "$(wanted)"; }
make() { apt_install $(wanted); }
mend() { apt_mend "$(wanted)"; }
