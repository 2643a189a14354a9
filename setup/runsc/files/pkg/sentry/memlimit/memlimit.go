// Package memlimit keeps a sandbox's use of the host's memory, and its number of tasks, below their limits, so that the host's kernel
// never has to kill the sentry. It reads the usage that the host counts, which includes the sentry's own heap, the stub processes,
// their page tables and their kernel stacks.
package memlimit

import (
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/sync"
)

const (
	mebibyte = 1 << 20
	// TaskBytes is the cost of a task: its goroutine, its stub process or thread, their kernel stacks and page tables.
	TaskBytes = mebibyte / 2
	// ProcessBytes and ThreadBytes are the memory that a new process or thread is expected to use soon. A process's includes the pages
	// that a shell's child copies.
	ProcessBytes = 3 * mebibyte / 2
	ThreadBytes  = mebibyte / 8
	// initTasks is the number of tasks that the first process may start beyond the limit of the others.
	initTasks = 64
	// faultBytes is the maximum that one page fault allocates.
	faultBytes = 2 * mebibyte
	// leastBudget bounds how often a sandbox that is close to its limit reads its usage.
	leastBudget = mebibyte
	// hardMargin is kept free below the host's own limit.
	hardMargin = 16 * mebibyte
	// hopelessPeriod is the time for which tasks continue unhindered after the guard has found no program to kill.
	hopelessPeriod = time.Second
)

// Options are the limits, and descriptors of the host's files that state the usage.
type Options struct {
	// Bytes is the sandbox's memory limit; HardBytes is the limit at which the host's kernel kills the sandbox.
	Bytes     uint64
	HardBytes uint64
	// Tasks bounds processes and threads together.
	Tasks int
	// Usage is memory.usage_in_bytes or memory.current; Stat is memory.stat.
	Usage int
	Stat  int
	// Report is the file into which kills and refusals are written.
	Report int
}

var (
	enabled bool
	options Options

	// pending is the number of bytes allocated since the last Look; when it reaches budget, the next Look is due.
	pending atomic.Int64
	budget  atomic.Int64
	used    atomic.Uint64
	// owed is the memory that young tasks are expected to use; see kernel/memory_young.go.
	owed atomic.Int64

	over     atomic.Bool
	hopeless atomic.Int64
	wakes    = make(chan struct{}, 1)

	relievedMu sync.Mutex
	relieved   = make(chan struct{})
)

// Enable puts limits into force. It is called once, before any program runs.
func Enable(o Options) {
	options = o
	enabled = true
	Look()
	report()
}

// Enabled reports whether there are limits.
func Enabled() bool { return enabled }

// reserve returns the limit divided by part, and never more than most.
func reserve(part, most uint64) uint64 { return min(options.Bytes/part, most) }

// forkReserve is the memory kept free for programs that already run, and for commands that the first process starts.
func forkReserve() uint64 { return reserve(8, 128*mebibyte) }

// tmpfsReserve is the memory that files in memory may not use, since killing a program frees none of them.
func tmpfsReserve() uint64 { return forkReserve() + reserve(16, 64*mebibyte) }

// near is the usage from which Look is exact, that is, subtracts file pages.
func near() uint64 { return options.Bytes - reserve(4, 256*mebibyte) }

// Look reads the usage, without file pages if it is close to the limit, and wakes the guard if it is too high.
func Look() uint64 {
	pending.Store(0)
	now := current()
	if now > near() {
		_, files := filePages()
		now -= min(now, files)
	}
	used.Store(now)
	budget.Store(max(int64(options.Bytes)-int64(now), 0) / 4)
	switch {
	case now > options.Bytes:
		if time.Now().UnixNano() < hopeless.Load() {
			break
		}
		over.Store(true)
		wake()
	case now > near():
		wake()
	}
	if budget.Load() < leastBudget {
		budget.Store(leastBudget)
	}
	return now
}

func wake() {
	select {
	case wakes <- struct{}{}:
	default:
	}
}

// Tick is called a hundred times a second while any task runs, since programs use memory that is already mapped without calling Admit.
func Tick() {
	if !enabled {
		return
	}
	Look()
}

// Admit reports whether length bytes may be allocated. The memory of programs is granted up to the host's own limit, since the guard
// kills the largest program; files in memory are refused earlier, since nothing would free them.
func Admit(length uint64, isFile bool) bool {
	if !enabled {
		return true
	}
	sum := pending.Add(int64(length))
	if sum < budget.Load() {
		return !isFile || used.Load()+uint64(sum)+tmpfsReserve() <= options.Bytes || admitFile(length)
	}
	if isFile {
		return admitFile(length)
	}
	if now := Look(); length > faultBytes && now+length+hardMargin > options.HardBytes {
		refuse(&memoryRefusals)
		return false
	}
	return true
}

func admitFile(length uint64) bool {
	if Look()+length+tmpfsReserve() <= options.Bytes {
		pending.Add(int64(length))
		return true
	}
	refuse(&memoryRefusals)
	return false
}

// AdmitTask reports whether a task may start in addition to the given number of tasks. isInit: the first process starts it.
func AdmitTask(tasks int, isInit bool) bool {
	if !enabled {
		return true
	}
	most := options.Tasks
	if isInit {
		most += initTasks
	}
	if tasks >= most {
		refuse(&taskRefusals)
		return false
	}
	return true
}

// AdmitTaskMemory reports whether there is memory for one more task that is expected to use that number of bytes. If so, they count
// as used until Settle is called.
func AdmitTaskMemory(isInit bool, expected int64) bool {
	if !enabled {
		return true
	}
	young := uint64(owed.Add(expected))
	if used.Load()+uint64(max(pending.Load(), 0))+young < options.Bytes/2 {
		return true
	}
	// The first process starts what the sandbox's owner requests: if that does not fit, the guard kills another program.
	if isInit || Look()+young+forkReserve() <= options.Bytes {
		return true
	}
	// Memory that ended programs left behind must not cause a refusal.
	if giveBackOnce() && Look()+young+forkReserve() <= options.Bytes {
		return true
	}
	owed.Add(-expected)
	refuse(&taskRefusals)
	return false
}

// Settle is called when a task has used what AdmitTaskMemory expected, or never will.
func Settle(expected int64) {
	if enabled {
		owed.Add(-expected)
	}
}

// IsOver reports whether tasks have to wait until the guard has freed memory.
func IsOver() bool { return over.Load() }

// Relieved returns a channel that is closed when waiting tasks may continue.
func Relieved() chan struct{} {
	relievedMu.Lock()
	defer relievedMu.Unlock()
	return relieved
}

// Wakes returns the channel that wakes the guard.
func Wakes() <-chan struct{} { return wakes }

// IsStillOver reads the usage again and reports whether it exceeds the limit.
func IsStillOver() bool { return Look() > options.Bytes }

// Excess reads the usage again and returns the number of bytes to free until forkReserve is available.
func Excess() uint64 {
	now := Look() + forkReserve()
	return now - min(now, options.Bytes)
}

// End lets waiting tasks continue. isHopeless: there is no program to kill, so tasks do not wait again for a while.
func End(isHopeless bool) {
	if isHopeless {
		hopeless.Store(time.Now().Add(hopelessPeriod).UnixNano())
	}
	over.Store(false)
	relievedMu.Lock()
	close(relieved)
	relieved = make(chan struct{})
	relievedMu.Unlock()
}

// Bytes returns the sandbox's memory limit.
func Bytes() uint64 { return options.Bytes }
