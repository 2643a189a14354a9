// This file ends stub processes. The release keeps every one that was ever made for a later program, so a sandbox that once ran a
// thousand programs would never give their memory back.

package systrap

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostsyscall"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// keptSubprocesses is how many idle stub processes wait for the next program; it saves the time to make one.
const keptSubprocesses = 64

// endMu lets one goroutine at a time wait for the host: each waiting one occupies a thread of the host.
var endMu sync.Mutex

// sharedRange is memory that the sentry and a stub process share.
type sharedRange struct {
	addr uintptr
	fr   memmap.FileRange
}

func queueRange(queue *contextQueue, fr memmap.FileRange) sharedRange {
	return sharedRange{uintptr(unsafe.Pointer(queue)), fr}
}

// end kills the subprocess and gives its memory back.
//
// Preconditions: nothing refers to s any more.
func (s *subprocess) end() {
	endMu.Lock()
	defer endMu.Unlock()
	s.dead.Store(true)
	close(s.requests)
	threads := make([]*sysmsgThread, 0, len(s.sysmsgThreads))
	s.sysmsgThreadsMu.Lock()
	for _, t := range s.sysmsgThreads {
		threads = append(threads, t)
	}
	clear(s.sysmsgThreads)
	s.sysmsgThreadsMu.Unlock()
	for _, t := range threads {
		t.thread.kill()
	}
	s.syscallThreadMu.Lock()
	defer s.syscallThreadMu.Unlock()
	s.syscallThread.thread.kill()
	s.syscallThread.thread.reap()
	// They are the sentry's children only after their parent has ended.
	for _, t := range threads {
		t.thread.reap()
		t.unmapStackFromSentry()
		s.memoryFile.DecRef(t.stackRange)
	}
	if s.syscallThread.seccompNotify != nil {
		s.syscallThread.seccompNotify.Close()
	}
	s.giveBack(sharedRange{s.syscallThread.sentryAddr, s.syscallThread.stackRange})
	for _, r := range s.shared {
		s.giveBack(r)
	}
}

func (s *subprocess) giveBack(r sharedRange) {
	if errno := hostsyscall.RawSyscallErrno(unix.SYS_MUNMAP, r.addr, uintptr(r.fr.Length()), 0); errno != 0 {
		panic(fmt.Sprintf("munmap(%x, %x) failed: %v", r.addr, r.fr.Length(), errno))
	}
	s.memoryFile.DecRef(r.fr)
}

// reap waits until the host has ended the thread; its memory is in use until then.
func (t *thread) reap() {
	for {
		_, err := unix.Wait4(int(t.tid), nil, unix.WALL, nil)
		if err != unix.EINTR && err != unix.EAGAIN {
			return
		}
	}
}
