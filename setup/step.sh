# Runs one set-up step in a separate process, which its errors stop: step.sh NAME probe|needs|after|refuses|make|note|advice|parts|pack.
source "$SVC_ROOT/setup/paths.sh"

needs() { :; }                # the steps that this one requires
after() { :; }                # the steps to wait for, whether they succeed or not
refuses() { return 1; }       # prints why the step is impossible here and returns 0
note() { :; }                 # a remark for the progress line
parts() { :; }                # the results for --export and --import: paths below the cache, named by the hash of their inputs
pack() { :; }                 # creates those of `parts` that only an export needs
advice() { echo "read the log above, then run ./svc setup --only $step_name"; }

# Creates a temporary folder next to its target, which a rename publishes later; a previous interrupted run's folder is removed first.
fresh_beside() {
  mkdir -p "${1%/*}"
  rm -rf --one-file-system "${1%/*}/.making-${1##*/}"
  mkdir "${1%/*}/.making-${1##*/}"
  printf '%s' "${1%/*}/.making-${1##*/}"
}

publish() {
  rm -rf --one-file-system "$2"
  mv -T "$1" "$2"
}

step_name=$1
source "$SVC_ROOT/setup/steps/$1.sh"
"$2"
