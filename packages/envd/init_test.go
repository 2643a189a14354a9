package main

// The parts of an identity that change the machine: host name, trust store, clock.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAsTheFirstProcessEnvdReapsOrphansAndLosesNoExitOfItsOwn(t *testing.T) {
	needRoot(t)
	e := startIn(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	for i := range 40 {
		// Each command leaves an orphan that ends by itself, often at the same moment as the command.
		done := e.run(fmt.Sprintf("(sleep 0.0%d & ) >/dev/null 2>&1; exit %d", i%5, i))
		if code, _ := done.end["exitCode"].(float64); int(code) != i {
			t.Fatalf("command %d ended with %v", i, done.end)
		}
	}
	eventually(t, "no ended process is left unreaped", func() bool { return len(childrenOf(e.cmd.Process.Pid)) == 0 })

	s := e.open("process.Process/Start", shell("trap '' TERM; sleep 600 & wait; sleep 600"), nil)
	s.pid()
	e.run("setsid sleep 600 >/dev/null 2>&1 &")
	e.stop()
	if code := e.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("envd ended with %d", code)
	}
}

// childrenOf includes zombies.
func childrenOf(pid int) (children []string) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if fields[1] == fmt.Sprint(pid) {
			children = append(children, path)
		}
	}
	return children
}
