# The template `host`: a skeleton in which a sandbox gets the host's /usr read-only; it is ready at once and needs no download.
source "$SVC_ROOT/setup/template.sh"

# The skeleton copies python3 and library paths that packages install.
after() { echo apt; }

# Programs of /usr are found through these links, which each package that is installed later may add to.
alternatives() { find /etc/alternatives -maxdepth 1 -type l -printf '%f %l\n' 2>/dev/null | LC_ALL=C sort; }
key=$(template_key host "$(alternatives)")
folder=$SVC_TEMPLATES_DIR/host-$key
advice() { echo "run ./svc setup --only host; without it and without a Debian mirror no sandbox has a root file system"; }
note() { if [[ ! -x /usr/bin/python3 ]]; then echo " (this host has no /usr/bin/python3, so its sandboxes have none)"; fi; }

probe() { template_whole "$folder" && [[ $(readlink "$SVC_TEMPLATES_DIR/host") == "host-$key" && -x /usr/bin/bash ]]; }

make() {
  local started=${EPOCHREALTIME/./} making
  making=$(fresh_beside "$folder")
  mkdir "$making/rootfs"
  "$SVC_ROOT/setup/templates/host/build.sh" "$making/rootfs" "$making/members"
  "$SVC_ROOT/setup/templates/lay-skeleton.sh" "$making/rootfs"
  "$SVC_ROOT/setup/templates/host/build.sh" "$making/rootfs" --rights
  write_template "$making" host "$key" host "$started" "$(<"$making/members")"
  rm "$making/members"
  publish_template "$making" "$folder"
  point_at host "host-$key"
}
