package main

// Descriptors that envd inherited, which root inside could reach through /proc/1/fd; all of them are closed.

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const firstBeyondStandard = 3

// closeInherited closes descriptors that the parent process left open by mistake, such as a pipe or a directory of the host. It keeps Go's own, which are
// anonymous or belong to the control-group files from which Go reads its CPU limit.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		descriptor, err := strconv.Atoi(entry.Name())
		if err != nil || descriptor < firstBeyondStandard {
			continue
		}
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/sys/fs/cgroup/") {
			continue
		}
		_ = unix.Close(descriptor)
	}
}

// leaveOutput closes the start-up log file on the host, which is unbounded and which root in the sandbox could fill.
func leaveOutput() {
	nothing, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	for standard := range firstBeyondStandard {
		_ = unix.Dup3(nothing, standard, 0)
	}
	_ = unix.Close(nothing)
}
