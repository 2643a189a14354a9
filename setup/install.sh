# Runs the steps that a command needs in parallel; prints nothing if nothing is missing. Sourced by `svc`; $1 names the purpose.

# How long a failed optional step is skipped before a command tries it again.
readonly retry_after_seconds=600
# How long a second ./svc waits for the first one's step.
readonly lock_wait_seconds=1800
# While it waits for that step, set-up prints a message this often.
readonly say_wait_seconds=30

mode=$1
case $mode in
  client) steps=(apt-first node npm) purpose=client ;;
  data) steps=($data_steps) purpose=$mode ;;
  run) steps=($run_steps) purpose=$mode ;;
  bench) steps=($bench_steps) purpose=$mode ;;
  test | setup) steps=($all_steps) purpose=test ;;
  only) shift; steps=("$@") purpose=test ;;
esac
[[ ${SVC_SETUP_PURPOSE-} == '' ]] || purpose=$SVC_SETUP_PURPOSE
export SVC_SETUP_PURPOSE=$purpose

say() { printf 'svc: %s\n' "$*" >&2; }

if ! mkdir -p "$SVC_CACHE/logs" "$SVC_CACHE/locks" 2>/dev/null || [[ ! -w $SVC_CACHE/locks ]]; then
  say "set-up needs a cache in $SVC_CACHE, which $(id -un) cannot write; set SVC_CACHE to a folder of yours"
  exit 1
fi

if [[ -d $SVC_ROOT/prebuilt ]]; then
  source "$SVC_ROOT/setup/prebuilt.sh"
  take_prebuilt
fi

# The board, where steps report their results to each other; boards of killed runs are removed.
for board in "$SVC_CACHE"/.run-*; do
  [[ -d /proc/${board##*.run-} ]] || rm -rf "$board"
done
board=$SVC_CACHE/.run-$$
mkdir -p "$board"
declare -A pid_of=()

end_steps() {
  local pid
  for pid in "${pid_of[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
  rm -rf "$board"
}
trap 'end_steps; exit 130' INT
trap 'end_steps; exit 143' TERM HUP

step() { bash -euo pipefail "$SVC_ROOT/setup/step.sh" "$@"; }

# Writes a step's result to the board: present, made, skipped or failed; the table and waiting steps read it.
finish() { printf '%s %s\n' "$2" "${3-0}" >"$board/.$1" && mv "$board/.$1" "$board/$1"; }

wait_for_step() {
  while [[ ! -f $board/$1 ]]; do
    # If the runner was killed, this step has no purpose any more.
    [[ -d $board ]] || exit 1
    sleep 0.05
  done
  [[ $(<"$board/$1") != failed* ]]
}

# Takes the step's lock on descriptor 9, or reports who holds it and for how long.
take_lock() {
  local name=$1 file=$SVC_CACHE/locks/$1.lock waited=0 holder
  # The file is opened without truncating it, because its holder has written its process id.
  exec 9<>"$file"
  until flock -n 9; do
    read -r holder <"$file" 2>/dev/null || holder=
    holder="another ./svc${holder:+ (process $holder)}"
    if ((waited == 0)); then say "$name: $holder is making it; waiting, for $((lock_wait_seconds / 60)) minutes at the longest"
    else say "$name: $holder is still making it; waited $waited s"; fi
    ((waited < lock_wait_seconds)) || return 1
    flock -w "$say_wait_seconds" 9 && break
    ((waited += say_wait_seconds))
  done
  echo "$$" >"$file"
}

run_step() {
  local name=$1 log=$SVC_CACHE/logs/$1.log failed=$SVC_CACHE/logs/$1.failed dependency started took reason
  if step "$name" probe >/dev/null 2>&1; then finish "$name" present; return; fi

  # Without this limit each `up` on a machine without a mirror would wait for the network again. Packages installed since then may have
  # solved the problem.
  if [[ $retry == no && -f $failed && ! /var/lib/dpkg/status -nt $failed && " apt-first node npm " != *" $name "* ]] && (($(date +%s) - $(stat -c %Y "$failed") < retry_after_seconds)); then
    finish "$name" skipped
    say "$name: failed a short while ago and is left alone; \`./svc setup\` tries again, $log says why"
    return
  fi

  for dependency in $(step "$name" needs); do
    [[ " ${steps[*]} " == *" $dependency "* ]] || continue
    if ! wait_for_step "$dependency"; then
      finish "$name" failed
      say "$name: not begun, since $dependency failed"
      return
    fi
  done

  for dependency in $(step "$name" after); do
    [[ " ${steps[*]} " != *" $dependency "* ]] || wait_for_step "$dependency" || true
  done

  take_lock "$name" || { finish "$name" failed; say "$name: gave up; $log says what is being done, and ./svc setup tries again"; return; }
  if step "$name" probe >/dev/null 2>&1; then finish "$name" present; return; fi

  if reason=$(step "$name" refuses); then
    finish "$name" skipped
    say "$name: $reason"
    return
  fi
  say "$name …"
  started=${EPOCHREALTIME/./}
  if step "$name" make >"$log" 2>&1 && step "$name" probe >>"$log" 2>&1; then
    took=$((${EPOCHREALTIME/./} - started))
    rm -f "$failed"
    finish "$name" made "$took"
    say "$name: $((took / 1000000)).$((took / 100000 % 10)) s$(step "$name" note 2>/dev/null || true)"
  else
    : >"$failed"
    finish "$name" failed
    { printf 'svc: %s failed; the end of %s:\n' "$name" "$log"; tail -n 12 "$log" | sed 's/^/    /'; step "$name" advice | sed 's/^/svc: /'; } >&2
  fi
}

retry=no
[[ ${SVC_SETUP_RETRY-} == yes ]] && retry=yes
begun=${EPOCHREALTIME/./}
# Each step gets its own process group, so that Ctrl-C can end everything it started. Job control is only on during the start, because it
# would otherwise print a line for each job that ends.
for name in "${steps[@]}"; do
  set -m
  run_step "$name" &
  pid_of[$name]=$!
  set +m
done
wait "${pid_of[@]}" || true

missing=() made=()
for name in "${steps[@]}"; do
  read -r word took <"$board/$name" 2>/dev/null || word=failed took=0
  case $word in
    made) made+=("$name $took") ;;
    failed) missing+=("$name") ;;
  esac
done
rm -rf "$board"
trap - INT TERM HUP

if ((${#made[@]})); then
  total=$((${EPOCHREALTIME/./} - begun))
  {
    printf 'svc: where the time went (steps run side by side)\n'
    for entry in "${made[@]}"; do printf '    %-16s %6d.%d s\n' "${entry% *}" $((${entry#* } / 1000000)) $((${entry#* } / 100000 % 10)); done
    printf '    %-16s %6d.%d s\n' 'all' $((total / 1000000)) $((total / 100000 % 10))
  } >&2
fi

# Every command needs Node and its packages; the command itself and `doctor` judge what else is missing.
for name in "${missing[@]}"; do
  case $name in
    node | npm) say "cannot go on without $name"; exit 1 ;;
  esac
  case $mode in setup | only) setup_failed=yes ;; run | data) [[ ${SVC_SETUP_RETRY-} != yes ]] || setup_failed=yes ;; esac
done
