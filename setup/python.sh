# Checks whether the Python packages in a folder can be used.

# python_imports FOLDER MODULE,MODULE…: importing them takes seconds, so the folder records the Python that succeeded.
python_imports() {
  local version
  version=$(python3 -VV) || return 1
  [[ -f $1/.imported-by && $(<"$1/.imported-by") == "$version" ]] && return
  PYTHONPATH=$1 python3 -c "import $2" && printf '%s\n' "$version" >"$1/.imported-by"
}

# python_version 3.12: prints a Python of this version that has pip, if there is one.
python_version() {
  local each
  for each in "python$1" "$HOME"/.pyenv/versions/"$1".*/bin/python python3; do
    each=$(command -v "$each") || continue
    [[ $("$each" -c 'import pip, sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null) == "$1" ]] || continue
    "$each" -c 'import sys; print(sys.executable)'
    return
  done
}
