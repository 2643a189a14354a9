# Checks whether the Python packages in a folder can be used.

# python_imports FOLDER MODULE,MODULE…: importing them takes seconds, so the folder records the Python that succeeded.
python_imports() {
  local version
  version=$(python3 -VV) || return 1
  [[ -f $1/.imported-by && $(<"$1/.imported-by") == "$version" ]] && return
  PYTHONPATH=$1 python3 -c "import $2" && printf '%s\n' "$version" >"$1/.imported-by"
}
