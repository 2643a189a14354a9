# Makes runsc start quicker: tune_runsc SOURCE. What is measured and why stands in ARCHITECTURE.md.

# Replaces what must be there exactly once: another version of runsc than the pinned one may say it otherwise.
replace_once() {
  local file=$1 old=$2 new=$3 text rest
  text=$(<"$file")
  rest=${text#*"$old"}
  if [[ $rest == "$text" || $rest == *"$old"* ]]; then
    echo "$file does not say exactly once: $old"
    echo "setup/runsc/tune.sh is written for another version of runsc than $SVC_RUNSC_VERSION"
    return 1
  fi
  printf '%s\n' "${text/"$old"/"$new"}" >"$file"
}

tune_runsc() {
  local source=$1 folder file=$1/pkg/sentry/state/stateio/pagesfile.go
  # 128 threads that read or write a checkpoint's pages keep the one thread that loads the kernel's state from a core.
  replace_once "$file" $'import (\n' $'import (\n\t"runtime"\n\n'
  replace_once "$file" 'pagesFileFDDefaultMaxParallel = 128' 'pagesFileFDMostParallel = 128'
  replace_once "$file" 'NewPagesFileFDReader(fd, pagesFileFDDefaultMaxIOBytes, pagesFileFDDefaultMaxParallel)' \
    'NewPagesFileFDReader(fd, pagesFileFDDefaultMaxIOBytes, min(pagesFileFDMostParallel, runtime.NumCPU()))'
  replace_once "$file" 'NewPagesFileFDWriter(fd, pagesFileFDDefaultMaxIOBytes, pagesFileFDDefaultMaxParallel)' \
    'NewPagesFileFDWriter(fd, pagesFileFDDefaultMaxIOBytes, min(pagesFileFDMostParallel, runtime.NumCPU()))'
  # Each sandbox's two processes compile the same seccomp programs anew otherwise.
  for folder in boot fsgofer; do
    file=$source/runsc/$folder/filter/filter_precompiled.go
    replace_once "$file" 'programs := make(map[string]precompiledseccomp.Program)' \
      $'programs := make(map[string]precompiledseccomp.Program)\n\tregisterGenerated(programs)'
    printf 'package filter\n\nimport "gvisor.dev/gvisor/pkg/seccomp/precompiledseccomp"\n\nfunc registerGenerated(map[string]precompiledseccomp.Program) {}\n' \
      >"$source/runsc/$folder/filter/filter_generated.go"
  done
  mkdir "$source/svcfilters"
  cp "$SVC_ROOT/setup/runsc/filters.go" "$source/svcfilters/main.go"
  (cd "$source" && "$GO" run ./svcfilters)
}
