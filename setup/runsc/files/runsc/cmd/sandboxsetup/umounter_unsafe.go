// This file forks the process that unmounts /proc for a sandbox's kernel, instead of executing a program for it.

package sandboxsetup

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostsyscall"
)

//go:linkname beforeFork syscall.runtime_BeforeFork
func beforeFork()

//go:linkname afterFork syscall.runtime_AfterFork
func afterFork()

var procPath = [...]byte{'/', 'p', 'r', 'o', 'c', 0}

// ForkProcUmounter replaces ExecProcUmounter for a caller that does not execute itself again. The forked child keeps the capability to
// unmount /proc and waits for a byte on a pipe, whose other end is returned. It then unmounts /proc and exits; it exits at once if
// that end is closed. Executing a program of 80 MB instead would take ten times the CPU time.
func ForkProcUmounter() (*os.File, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making the umounter's pipe: %w", err)
	}
	errno := forkProcUmounter(uintptr(fds[0]))
	unix.Close(fds[0])
	if errno != 0 {
		unix.Close(fds[1])
		return nil, fmt.Errorf("forking the umounter: %w", errno)
	}
	return os.NewFile(uintptr(fds[1]), "procfs umount sync FD"), nil
}

// The child may neither lock, nor allocate, nor grow its stack: a thread that held a lock at the fork does not exist in the child to release it.
//
//go:noinline
//go:norace
func forkProcUmounter(readFD uintptr) unix.Errno {
	var (
		pid   uintptr
		n     uintptr
		errno unix.Errno
		buf   [1]byte
	)
	syscall.ForkLock.Lock()
	beforeFork()
	pid, errno = hostsyscall.RawSyscall(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0)
	if errno != 0 || pid != 0 {
		afterFork()
		syscall.ForkLock.Unlock()
		return errno
	}
	// The child closes inherited descriptors as exec would, so that no reader waits for a pipe that the child keeps open.
	if readFD > 3 {
		if errno = hostsyscall.RawSyscallErrno(unix.SYS_CLOSE_RANGE, 3, readFD-1, 0); errno != 0 {
			hostsyscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
		}
	}
	if errno = hostsyscall.RawSyscallErrno(unix.SYS_CLOSE_RANGE, readFD+1, uintptr(^uint32(0)), 0); errno != 0 {
		hostsyscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	}
	// All signals are still blocked as during the fork, so only SIGKILL interrupts the wait.
	n, errno = hostsyscall.RawSyscall(unix.SYS_READ, readFD, uintptr(unsafe.Pointer(&buf[0])), 1)
	if errno == 0 && n != 1 {
		errno = unix.EPIPE
	}
	if errno == 0 {
		errno = hostsyscall.RawSyscallErrno(unix.SYS_UMOUNT2, uintptr(unsafe.Pointer(&procPath[0])), uintptr(unix.MNT_DETACH), 0)
	}
	hostsyscall.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(errno), 0, 0)
	return errno
}
