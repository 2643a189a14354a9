package main

// What envd was started with, and whoever is root inside could reach through /proc/1/fd: nothing of it stays open.

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const firstBeyondStandard = 3

// closeInherited closes descriptors that whoever started envd left open by mistake, be it a pipe or a directory of the host.
// Go's own are of the anonymous kind, or files of the control group that it learns its processors from.
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

// leaveOutput lets go of the file on the host that took envd's first words: it has no bound, and root inside could fill it.
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
