# runsc's source as we build it: fetch_runsc FOLDER, tune_runsc FOLDER, build_runsc FOLDER PROGRAM. README.md says what is changed.

# Copies the pinned runsc's source, as the module proxy gives it, to the folder $1.
fetch_runsc() {
  local module
  module=$("$GO" mod download -json "gvisor.dev/gvisor@$SVC_RUNSC_VERSION" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  [[ -d $module ]] || { echo "the module proxy gave no gvisor.dev/gvisor@$SVC_RUNSC_VERSION"; return 1; }
  cp -r "$module" "$1"
  chmod -R u+w "$1"
}

# Applies the changes of this folder to the source in $1. Fails with the patch that was written for other lines.
tune_runsc() {
  local each
  tune_files "$1"
  for each in "$SVC_ROOT"/setup/runsc/patches/*.patch; do apply_patch "$each" "$1" || return 1; done
}

# The files that are ours alone.
tune_files() {
  local source=$1 process architecture
  cp -r "$SVC_ROOT/setup/runsc/files/." "$source"
  for process in sentry gofer; do
    for architecture in amd64 arm64; do
      cp "$SVC_ROOT/setup/runsc/programs/${process}_$architecture.go" "$(filter_folder "$source" "$process")/filter_generated_$architecture.go"
    done
  done
}

# No fuzz: lines that read otherwise may mean something else.
apply_patch() {
  patch --directory="$2" --strip=1 --fuzz=0 --quiet --no-backup-if-mismatch --reject-file=- --force <"$1" && return
  echo "setup/runsc: ${1##*/} does not apply to runsc $SVC_RUNSC_VERSION; setup/runsc/README.md says how to move it"
  return 1
}

# Builds the source in $1 into the program $2; the same source gives the same bytes, wherever it lies.
build_runsc() {
  # Without CGO_ENABLED=0 every sandbox dies. Niced: the other steps are shorter, and wait for less.
  (cd "$1" && CGO_ENABLED=0 nice -n 10 "$GO" build -trimpath -o "$2" \
    -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$SVC_RUNSC_VERSION-$SVC_RUNSC_TUNING" ./runsc)
}

filter_folder() {
  case $2 in
    sentry) echo "$1/runsc/boot/filter" ;;
    gofer) echo "$1/runsc/fsgofer/filter" ;;
  esac
}
