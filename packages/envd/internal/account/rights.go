package account

// Acting for a user: the calling thread takes the user's ids, so the kernel itself checks every path.
//
//	root thread ── setgroups, setresgid(-1,g,-1), setresuid(-1,u,-1) ──▶ user's rights (no capability is effective)
//	            ◀── setresuid(-1,0,-1), setresgid(-1,0,-1), setgroups ──
//
// Only the effective ids change: the real and saved ones stay 0, so the user can neither signal nor trace envd.
// setfsuid would be enough, but gVisor does not implement it. A thread that cannot return to root is never used again.

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

// Each act occupies a thread; a hung network file system must not occupy all of them.
const maxConcurrentActs = 64

var (
	acts = make(chan struct{}, maxConcurrentActs)
	unch = ^uintptr(0) // -1: leave this id as it is

	ownGroups = sync.OnceValues(unix.Getgroups)
)

// Do runs act with the account's rights. act should only open, name or inspect, since a descriptor keeps its rights afterwards.
func (a Account) Do(act func() error) error {
	acts <- struct{}{}
	defer func() { <-acts }()
	if a.UID == os.Geteuid() {
		return act()
	}
	own, err := ownGroups()
	if err != nil {
		return failure.New(failure.Internal, "cannot read envd's own groups: %w", err)
	}
	done := make(chan error, 1)
	go func() {
		// On failure the thread is not unlocked, so the runtime ends it together with this goroutine.
		runtime.LockOSThread()
		err := a.assume()
		if err == nil {
			err = guarded(act)
		}
		if restore(own) {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Lend runs act with envd's own rights, within the same limit.
func Lend(act func() error) error {
	acts <- struct{}{}
	defer func() { <-acts }()
	return guarded(act)
}

func (a Account) assume() error {
	if err := setGroups(a.Groups); err != 0 {
		return a.refused(err)
	}
	if _, _, err := unix.RawSyscall(unix.SYS_SETRESGID, unch, uintptr(a.GID), unch); err != 0 {
		return a.refused(err)
	}
	if _, _, err := unix.RawSyscall(unix.SYS_SETRESUID, unch, uintptr(a.UID), unch); err != 0 {
		return a.refused(err)
	}
	// The result is verified, since with unusual securebits a thread keeps its capabilities after setresuid.
	uid, _, _ := unix.RawSyscall(unix.SYS_GETEUID, 0, 0, 0)
	if int(uid) != a.UID || hasEffectiveCapability() {
		return failure.New(failure.Internal, "the kernel did not give up root's rights for user '%s'", a.Name)
	}
	return nil
}

func (a Account) refused(errno unix.Errno) error {
	return failure.New(failure.Unauthenticated, "this sandbox's kernel refuses to act for user '%s' (uid %d): %w", a.Name, a.UID, errno)
}

func restore(groups []int) bool {
	_, _, uidErr := unix.RawSyscall(unix.SYS_SETRESUID, unch, 0, unch)
	_, _, gidErr := unix.RawSyscall(unix.SYS_SETRESGID, unch, uintptr(os.Getgid()), unch)
	ids := make([]uint32, len(groups))
	for i, group := range groups {
		ids[i] = uint32(group)
	}
	return uidErr == 0 && gidErr == 0 && setGroups(ids) == 0
}

func setGroups(ids []uint32) unix.Errno {
	var first unsafe.Pointer
	if len(ids) > 0 {
		first = unsafe.Pointer(&ids[0])
	}
	// The raw call affects this thread only; syscall.Setgroups would change every thread.
	_, _, err := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(ids)), uintptr(first), 0)
	return err
}

func hasEffectiveCapability() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return true
	}
	return data[0].Effective != 0 || data[1].Effective != 0
}

// guarded keeps a panic in act from ending the whole agent together with the thread's goroutine.
func guarded(act func() error) (err error) {
	defer func() {
		if bug := recover(); bug != nil {
			err = failure.New(failure.Internal, "%s", fmt.Sprintf("envd failed: %v\n%s", bug, debug.Stack()))
		}
	}()
	return act()
}
