# Makes runsc start quicker: tune_runsc SOURCE. What is measured and why stands in ARCHITECTURE.md.

source "${BASH_SOURCE[0]%/*}/layers.sh"
source "${BASH_SOURCE[0]%/*}/mapped.sh"

# Replaces what must be there exactly once: another version of runsc than the pinned one may say it otherwise.
replace_once() {
  local file=$1 old=$2 new=$3
  # Bash itself takes a second for a file of a hundred kilobytes.
  if ! OLD=$old NEW=$new awk 'BEGIN { RS = "\001" } { text = $0 }
      END {
        old = ENVIRON["OLD"]; at = index(text, old)
        if (!at || index(substr(text, at + 1), old)) exit 1
        printf "%s%s%s", substr(text, 1, at - 1), ENVIRON["NEW"], substr(text, at + length(old))
      }' "$file" >"$file.tuned"; then
    echo "$file does not say exactly once: $old"
    echo "setup/runsc/tune.sh is written for another version of runsc than $SVC_RUNSC_VERSION"
    return 1
  fi
  mv "$file.tuned" "$file"
}

# Copies the pinned runsc's source, as the module proxy gives it, to the folder $1.
fetch_runsc() {
  local module
  module=$("$GO" mod download -json "gvisor.dev/gvisor@$SVC_RUNSC_VERSION" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  [[ -d $module ]] || { echo "the module proxy gave no gvisor.dev/gvisor@$SVC_RUNSC_VERSION"; return 1; }
  cp -r "$module" "$1"
  chmod -R u+w "$1"
}

tune_runsc() {
  tune_layers "$1"
  tune_mapped "$1"
  local source=$1 process folder architecture file=$1/pkg/sentry/state/stateio/pagesfile.go
  # 128 threads that read or write a checkpoint's pages keep the one thread that loads the kernel's state from a core.
  replace_once "$file" $'import (\n' $'import (\n\t"runtime"\n\n'
  replace_once "$file" 'pagesFileFDDefaultMaxParallel = 128' 'pagesFileFDMostParallel = 128'
  replace_once "$file" 'NewPagesFileFDReader(fd, pagesFileFDDefaultMaxIOBytes, pagesFileFDDefaultMaxParallel)' \
    'NewPagesFileFDReader(fd, pagesFileFDDefaultMaxIOBytes, min(pagesFileFDMostParallel, runtime.NumCPU()))'
  replace_once "$file" 'NewPagesFileFDWriter(fd, pagesFileFDDefaultMaxIOBytes, pagesFileFDDefaultMaxParallel)' \
    'NewPagesFileFDWriter(fd, pagesFileFDDefaultMaxIOBytes, min(pagesFileFDMostParallel, runtime.NumCPU()))'
  # A program compiled ahead must not carry the process id of the program that compiled it: the sentry, which may end
  # only threads of its own process, would be killed for ending one.
  file=$source/pkg/sentry/platform/systrap/filters.go
  replace_once "$file" $'\t"os"\n' ''
  replace_once "$file" 'seccomp.EqualTo(os.Getpid())' 'seccomp.EqualTo(vars.GetUint64("self_pid"))'
  # The process that unmounts /proc for a sandbox's kernel is forked from it: the start of one more program of 80 MB is not needed for one system call.
  cp "$SVC_ROOT/setup/runsc/start/umounter.go" "$source/runsc/cmd/sandboxsetup/umounter_unsafe.go"
  replace_once "$source/runsc/cmd/sentry/sentrycmd/boot.go" \
    $'\t\t\tcmd, w := sandboxsetup.ExecProcUmounter()\n\t\t\tif b.willReexec() {\n\t\t\t\tdefer cmd.Wait()\n' \
    $'\t\t\tvar w *os.File\n\t\t\tif b.willReexec() {\n\t\t\t\tvar cmd *exec.Cmd\n\t\t\t\tcmd, w = sandboxsetup.ExecProcUmounter()\n\t\t\t\tdefer cmd.Wait()\n'
  replace_once "$source/runsc/cmd/sentry/sentrycmd/boot.go" \
    $'\t\t\t\t// Keep `w` alive until UmountProcFile uses it.\n' \
    $'\t\t\t\tif w, err = sandboxsetup.ForkProcUmounter(); err != nil {\n\t\t\t\t\tutil.Fatalf("error starting the proc umounter: %v", err)\n\t\t\t\t}\n'
  replace_once "$source/runsc/cmd/sentry/sentrycmd/boot.go" $'\t"os"\n' $'\t"os"\n\t"os/exec"\n'
  # A start in a blank finds a runsc that has started already, and says its verb.
  cp "$SVC_ROOT/setup/runsc/start/words.go" "$source/runsc/cli/words.go"
  replace_once "$source/runsc/cli/cli.go" $'\t// All subcommands must be registered before flag parsing.\n' $'\ttakeWords()\n\t// All subcommands must be registered before flag parsing.\n'
  # While a machine is stopped its monotonic clock stands still, as a virtual machine's does: what is left of a time-out is left after it. What
  # /proc says is counted from a boot that lies so much later, and so do starts of programs.
  replace_once "$source/pkg/sentry/kernel/timekeeper.go" \
    $'\t\telapsed := nowRealtime - t.saveRealtime\n\t\tif elapsed > 0 {\n\t\t\twantMonotonic += elapsed\n\t\t}\n' \
    $'\t\tt.bootTime = ktime.FromNanoseconds(nowRealtime - wantMonotonic)\n'
  replace_once "$source/pkg/sentry/kernel/kernel.go" \
    $'\tk.Timekeeper().SetClocks(clocks, k.vdsoParams)\n\n\tif timeReady != nil {\n\t\tclose(timeReady)\n\t}\n\n\tif s := k.root' \
    $'\tbootTime := k.Timekeeper().BootTime()\n\tk.Timekeeper().SetClocks(clocks, k.vdsoParams)\n\tstopped := k.Timekeeper().BootTime().Sub(bootTime)\n\tk.tasks.mu.Lock()\n\tk.tasks.forEachTaskLocked(func(t *Task) { t.startTime = t.startTime.Add(stopped) })\n\tk.tasks.mu.Unlock()\n\n\tif timeReady != nil {\n\t\tclose(timeReady)\n\t}\n\n\tif s := k.root'
  # Each sandbox's two processes compile the same seccomp programs anew otherwise.
  for process in sentry gofer; do
    folder=$(filter_folder "$source" "$process")
    replace_once "$folder/filter_precompiled.go" 'programs := make(map[string]precompiledseccomp.Program)' \
      $'programs := make(map[string]precompiledseccomp.Program)\n\tregisterGenerated(programs)'
    for architecture in amd64 arm64; do
      cp "$SVC_ROOT/setup/runsc/programs/${process}_$architecture.go" "$folder/filter_generated_$architecture.go"
    done
  done
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
