# The template `base`: a Debian root that mmdebstrap builds from the host's own mirrors, or an alias of `host` if no mirror answers.
source "$SVC_ROOT/setup/template.sh"
source "$SVC_ROOT/setup/mirrors.sh"

# The release comes from os-release, because asking apt for it costs a second, and each `up` needs the key.
key=$(template_key base "$(. /etc/os-release 2>/dev/null && echo "${ID-}:${VERSION_CODENAME-}")")
# The archive of a release has one base for every system; a host with authorities of its own gets a copy that trusts them.
prebuilt=$(compgen -G "$SVC_ROOT/prebuilt/templates/base-*" || true)
if [[ -n $prebuilt ]]; then
  key=${prebuilt##*/base-}
  if [[ -n $(host_authorities) ]]; then key=$(template_key base "$key"); fi
fi
folder=$SVC_TEMPLATES_DIR/base-$key
aliases=$SVC_TEMPLATES_DIR/aliases.json
after() { echo apt host; }
probe() { template_whole "$folder" && [[ -x $folder/rootfs/usr/bin/bash && $(readlink "$SVC_TEMPLATES_DIR/base") == "base-$key" && ! -e $aliases ]]; }
advice() { echo "until a Debian mirror answers, the template base is an alias of host (the host's /usr, no apt inside); then run ./svc setup --only base"; }

parts() { echo "templates/base-$key"; }

# Prints why this machine cannot build the template, if so; the alias then replaces it.
refuses() {
  local reason
  if [[ -n $prebuilt ]] || template_whole "$folder"; then
    return 1
  elif ! type -P mmdebstrap >/dev/null; then
    reason="mmdebstrap is not installed"
  elif [[ -z $(mirror_suite) ]]; then
    reason="this host's package sources name no Debian or Ubuntu mirror"
  elif ((EUID != 0)) && ! { type -P newuidmap >/dev/null && grep -qs "^$(id -un):" /etc/subuid; }; then
    reason="without root mmdebstrap needs uidmap and a row for $(id -un) in /etc/subuid"
  else
    return 1
  fi
  alias_to_host "$reason"
  echo "$reason; base is an alias of host"
}

alias_to_host() {
  mkdir -p "$SVC_TEMPLATES_DIR"
  local target
  target=$(readlink "$SVC_TEMPLATES_DIR/host")
  printf '{ "base": { "template": %s, "reason": %s } }\n' "$(json_string "$target")" "$(json_string "$1")" >"$aliases.making"
  mv -f "$aliases.making" "$aliases"
  point_at base "$target"
}

make() {
  local started=${EPOCHREALTIME/./} making
  # The template exists already, because another tree built it, or an import brought it.
  if template_whole "$folder"; then
    put_in_force
    return
  fi
  # Servers find some base from here on, even if this build fails; an older real one stays current meanwhile.
  [[ -e $SVC_TEMPLATES_DIR/base/template.json ]] || alias_to_host "the Debian root is being made"
  making=$(fresh_beside "$folder")
  if [[ -n $prebuilt ]]; then
    cp -al "$prebuilt/rootfs" "$making/" 2>/dev/null || cp -a "$prebuilt/rootfs" "$making/"
    trust_host_authorities "$making/rootfs"
  elif ! bootstrap "$making"; then
    rm -rf --one-file-system "$making"
    [[ -e $aliases ]] && alias_to_host "mmdebstrap failed; see $SVC_CACHE/logs/base.log"
    return 1
  fi
  write_template "$making" base "$key" "$(. /etc/os-release && echo "$ID"):$(mirror_suite)" "$started"
  publish_template "$making" "$folder"
  put_in_force
}

put_in_force() {
  point_at base "base-$key"
  rm -f "$aliases"
}

bootstrap() {
  local recipe=$SVC_ROOT/setup/templates/base options=(--variant=minbase) line target=$1/rootfs
  options+=("--include=$(grep -v '^#' "$recipe/packages.txt" | paste -sd,)" "--customize-hook=\"\$SVC_RECIPE/customize.sh\" \"\$1\"")
  # The root is a cache: losing it in a power cut only costs a rebuild, while syncing each file would take half of the build time.
  for line in force-unsafe-io path-exclude=/usr/share/{doc,man,info,locale,lintian}/\* path-include=/usr/share/doc/\*/copyright; do
    options+=("--dpkgopt=$line")
  done
  # mmdebstrap does not read the host's apt settings.
  while read -r line; do options+=("--aptopt=$line"); done < <(apt_settings)
  options+=('--aptopt=Acquire::Languages "none"')
  if ((EUID == 0)); then
    options+=(--mode=root)
  else
    options+=(--mode=unshare)
    target=$1/rootfs.tar
  fi
  # The recipe's path is an environment variable, since mmdebstrap passes the hook to a shell, and the path may contain spaces or quotes.
  mirror_lines | SVC_RECIPE=$recipe mmdebstrap "${options[@]}" "$(mirror_suite)" "$target" - || return 1
  if ((EUID != 0)); then
    # All files belong to the user who runs the sandboxes, and are mapped inside. Device files cannot be created and are not needed.
    mkdir "$1/rootfs" && tar -C "$1/rootfs" --no-same-owner --exclude='./dev/*' -xf "$target" && rm "$target" || return 1
    chmod u+rwX -R "$1/rootfs"
  fi
}
