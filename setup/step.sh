# One set-up step in a process of its own, so that its errors stop it: step.sh NAME probe|needs|after|refuses|make|note|advice|parts|pack.
source "$SVC_ROOT/setup/paths.sh"

needs() { :; }                # the steps without which this one cannot be made
after() { :; }                # the steps to wait for, whether they succeed or not
refuses() { return 1; }       # prints why the step cannot be done here and returns 0
note() { :; }                 # a remark for the progress line
parts() { :; }                # what it made, as paths below the cache named by what they were made from: --export and --import
pack() { :; }                 # makes what `parts` names where it is made for an export alone
advice() { echo "read the log above, then run ./svc setup --only $step_name"; }

# A new temporary folder beside its target, so that a rename publishes it; what an interrupted run left goes first.
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
