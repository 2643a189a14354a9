# Exits with 1 if a package of the npm lock file is missing from node_modules or has another version.
/^    "node_modules\// {
  name = $0
  sub(/^    "/, "", name)
  sub(/": \{.*$/, "", name)
  version = ""
  skip = 0
  next
}
# Optional packages belong to other platforms; development packages are only needed by tests and benches.
/^      "(optional|devOptional)": true/ { skip = 1 }
/^      "dev": true/ { if (dev != "all") skip = 1 }
/^      "version": "/ {
  version = $0
  sub(/^      "version": "/, "", version)
  sub(/".*$/, "", version)
}
/^    \}/ {
  if (name != "" && !skip) {
    file = root name "/package.json"
    found = 0
    lines = 0
    while (!found && (getline line < file) > 0) {
      lines++
      if (version == "" || (index(line, "\"version\"") && index(line, "\"" version "\""))) found = 1
    }
    close(file)
    if (!found) exit 1
  }
  name = ""
}
