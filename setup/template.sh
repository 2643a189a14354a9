# What the two template steps share: a template's key, its template.json, and the link by which servers find the one in force.
#
#   templates/base → base-KEY/   {rootfs/, template.json}     the link says which recipe is in force
#   templates/host → host-KEY/
#   templates/aliases.json       only while `base` is an alias of `host`: {"base": {"template": "host-KEY", "reason": "…"}}

# The key of template $1: its recipe, what both share, and the authorities that the host adds to the distribution's.
template_key() {
  {
    recipe_hash setup/templates/skeleton setup/templates/lay-skeleton.sh "setup/templates/$1" "setup/steps/$1.sh" setup/template.sh
    find -L /usr/local/share/ca-certificates -type f -exec sha256sum {} + 2>/dev/null | LC_ALL=C sort
    uname -m
    ((EUID == 0)) && echo root
    echo "${2-}"
  } | sha256sum | cut -c1-16
}

# 20 characters as the field's clients print them; the same for a template's name on every machine.
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

# publish_template MAKING FOLDER: under its name, and then its template.json, by which servers take it for whole.
publish_template() {
  publish "$1" "$2"
  mv "$2/.template.json" "$2/template.json"
}

# Puts the link NAME on FOLDER in one step, so that a server never sees none.
point_at() {
  ln -sfn "$2" "$SVC_TEMPLATES_DIR/.$1.link"
  mv -fT "$SVC_TEMPLATES_DIR/.$1.link" "$SVC_TEMPLATES_DIR/$1"
}

# The template in folder $1 is whole: a shell that runs from its root, and a template.json that was written last.
template_whole() {
  [[ -s $1/template.json && -d $1/rootfs/etc && -f $1/rootfs/etc/passwd && $(tail -n 1 "$1/template.json") == '}' ]]
}
