# Shared by the two template steps: a template's key, its template.json, and the link with which servers find the current one.
#
#   templates/base → base-KEY/   {rootfs/, template.json}     the link names the current recipe
#   templates/host → host-KEY/
#   templates/aliases.json       exists only while `base` is an alias of `host`: {"base": {"template": "host-KEY", "reason": "…"}}

# The key of template $1: its recipe, the parts that both templates share, and the authorities that the host adds to the distribution's.
template_key() {
  {
    recipe_hash setup/templates/skeleton setup/templates/lay-skeleton.sh "setup/templates/$1" "setup/steps/$1.sh" setup/template.sh
    host_authorities
    uname -m
    ((EUID == 0)) && echo root
    echo "${2-}"
  } | sha256sum | cut -c1-16
}

# The certificates that the host trusts beside the distribution's, each with its checksum.
host_authorities() { find -L /usr/local/share/ca-certificates -type f -exec sha256sum {} + 2>/dev/null | LC_ALL=C sort; }

# Makes the root $1 trust them too. The file is replaced, because it may be linked from another template.
trust_host_authorities() {
  local bundle=$1/etc/ssl/certs/ca-certificates.crt
  find -L /usr/local/share/ca-certificates -type f -exec cat {} + | cat "$bundle" - >"$bundle.making"
  mv "$bundle.making" "$bundle"
  # A later update-ca-certificates inside the sandbox keeps them.
  mkdir -p "$1/usr/local/share/ca-certificates"
  cp -RL /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"
}

# An id of 20 characters, as E2B's clients print it; a template's name has the same id on every machine.
template_id() { printf 'svc-template:%s' "$1" | sha256sum | cut -c1-20; }

# json_string TEXT: the text as a JSON string.
json_string() {
  local text=${1//\\/\\\\}
  text=${text//\"/\\\"}
  text=${text//$'\n'/ }
  printf '"%s"' "${text//[$'\t'$'\r']/ }"
}

# write_template FOLDER NAME KEY SOURCE STARTED_MICROSECONDS EXTRA_JSON_MEMBERS
write_template() {
  local size
  size=$(du -sb "$1/rootfs" | cut -f1)
  cat >"$1/.template.json" <<JSON
{
  "name": "$2",
  "templateID": "$(template_id "$2")",
  "cpuCount": 2,
  "memoryMB": 1024,
  "diskSizeMB": 4096,
  "user": "user",
  "workdir": "/home/user",
  "env": {},
  "createdAt": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "recipe": "$3",
  "source": $(json_string "$4"),
  "sizeBytes": $size,
  "durationMs": $(((${EPOCHREALTIME/./} - $5) / 1000))${6:+,
  $6}
}
JSON
}

# publish_template MAKING FOLDER: renames the folder and then its template.json, which marks the template as complete for servers.
publish_template() {
  publish "$1" "$2"
  mv "$2/.template.json" "$2/template.json"
}

# Points the link NAME to FOLDER atomically, so that a server always finds one.
point_at() {
  ln -sfn "$2" "$SVC_TEMPLATES_DIR/.$1.link"
  mv -fT "$SVC_TEMPLATES_DIR/.$1.link" "$SVC_TEMPLATES_DIR/$1"
}

# Checks that the template in folder $1 is complete: the template.json, which is written last, and the root's main files.
template_whole() {
  [[ -s $1/template.json && -d $1/rootfs/etc && -f $1/rootfs/etc/passwd && $(tail -n 1 "$1/template.json") == '}' ]]
}
