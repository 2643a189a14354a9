// This file ends idle stub processes. Unmodified gVisor keeps every stub process for reuse, so a sandbox that once ran a thousand
// programs would never return their memory.

package systrap

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostsyscall"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

// keptSubprocesses is the number of idle stub processes kept for later programs, which then need not create one.
const keptSubprocesses = 64

// endMu lets only one goroutine at a time wait for the host, since each waiting goroutine occupies a host thread.
var endMu sync.Mutex

// sharedRange is memory that the sentry and a stub process share.
type sharedRange struct {
	addr uintptr
	fr   memmap.FileRange
}

func queueRange(queue *contextQueue, fr memmap.FileRange) sharedRange {
	return sharedRange{uintptr(unsafe.Pointer(queue)), fr}
}

// end kills the subprocess and returns its memory.
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
	// The sysmsg threads become the sentry's children only when their parent, the syscall thread, has ended.
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

// reap waits until the host has ended the thread, since its memory is in use until then.
func (t *thread) reap() {
	for {
		_, err := unix.Wait4(int(t.tid), nil, unix.WALL, nil)
		if err != unix.EINTR && err != unix.EAGAIN {
			return
		}
	}
}
