// Package memlimit keeps what a sandbox uses of the host's memory below the sandbox's limit, and its tasks below theirs, so that
// the host's kernel never has to end the sentry. It reads what the host counts: the sentry's own heap, the stub processes, their
// page tables and kernel stacks are all in it.
package memlimit

import (
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/sync"
)

const (
	mebibyte = 1 << 20
	// TaskBytes is what a task costs: its goroutine, its stub process or thread, their kernel stacks and page tables.
	TaskBytes = mebibyte / 2
	// ProcessBytes and ThreadBytes are what a new one is expected to use soon. For a process they include the pages that a shell's
	// child copies.
	ProcessBytes = 3 * mebibyte / 2
	ThreadBytes  = mebibyte / 8
	// initTasks is how many tasks more than others the first process may start.
	initTasks = 64
	// faultBytes is the most that one page fault allocates.
	faultBytes = 2 * mebibyte
	// leastBudget bounds how often a sandbox that is close to its limit reads what it uses.
	leastBudget = mebibyte
	// hardMargin is kept free below the host's own limit.
	hardMargin = 16 * mebibyte
	// hopelessPeriod is how long tasks go on unhindered when nothing is left that could be ended.
	hopelessPeriod = time.Second
)

// Options are the limits, and the host's files that say what is used.
type Options struct {
	// Bytes is the sandbox's memory; HardBytes is where the host's kernel ends it.
	Bytes     uint64
	HardBytes uint64
	// Tasks bounds processes and threads together.
	Tasks int
	// Usage is memory.usage_in_bytes or memory.current; Stat is memory.stat.
	Usage int
	Stat  int
	// Report is the file that takes what was ended and refused.
	Report int
}

var (
	enabled bool
	options Options

	// pending is what was allocated since the last look, and budget how much may be before the next.
	pending atomic.Int64
	budget  atomic.Int64
	used    atomic.Uint64
	// owed is what young tasks will use; see kernel/memory_young.go.
	owed atomic.Int64

	over     atomic.Bool
	hopeless atomic.Int64
	wakes    = make(chan struct{}, 1)

	relievedMu sync.Mutex
	relieved   = make(chan struct{})
)

// Enable puts limits in force; called once, before anything runs.
func Enable(o Options) {
	options = o
	enabled = true
	Look()
	report()
}

// Enabled says whether there are limits.
func Enabled() bool { return enabled }

// reserve is a part of the limit, and never more than most.
func reserve(part, most uint64) uint64 { return min(options.Bytes/part, most) }

// forkReserve is kept for the programs that run already, and for commands that the first process starts.
func forkReserve() uint64 { return reserve(8, 128*mebibyte) }

// tmpfsReserve is kept free of files in memory: ending a program frees none of them.
func tmpfsReserve() uint64 { return forkReserve() + reserve(16, 64*mebibyte) }

// near is where a look becomes exact.
func near() uint64 { return options.Bytes - reserve(4, 256*mebibyte) }

// Look reads what is used, without pages of files where that matters, and wakes the guard when it is too much.
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

// Tick is called a hundred times a second while any task runs: memory that is mapped already is used without asking.
func Tick() {
	if !enabled {
		return
	}
	Look()
}

// Admit says whether length bytes may be allocated. The memory of programs is granted up to the host's own limit, since the guard
// ends the largest of them; files in memory are refused, since nothing would free them.
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

// AdmitTask says whether one more task may start where tasks exist already; isInit: the first process starts it.
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

// AdmitTaskMemory says whether there is memory for one more task that is expected to use that number of bytes. If so they count
// until Settle.
func AdmitTaskMemory(isInit bool, expected int64) bool {
	if !enabled {
		return true
	}
	young := uint64(owed.Add(expected))
	if used.Load()+uint64(max(pending.Load(), 0))+young < options.Bytes/2 {
		return true
	}
	// The first process starts what the sandbox's owner requests: where it does not fit, the guard ends something else.
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

// Settle says that a task has used what AdmitTaskMemory expected, or never will.
func Settle(expected int64) {
	if enabled {
		owed.Add(-expected)
	}
}

// IsOver says whether tasks have to wait until the guard has made room.
func IsOver() bool { return over.Load() }

// Relieved is closed when tasks may go on.
func Relieved() chan struct{} {
	relievedMu.Lock()
	defer relievedMu.Unlock()
	return relieved
}

// Wakes is what the guard waits for.
func Wakes() <-chan struct{} { return wakes }

// IsStillOver looks again.
func IsStillOver() bool { return Look() > options.Bytes }

// Excess looks again, and returns by how much more is used than leaves memory for forks.
func Excess() uint64 {
	now := Look() + forkReserve()
	return now - min(now, options.Bytes)
}

// End lets tasks go on. isHopeless: there is nothing to end, so that they must not wait.
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

// Bytes is the limit.
func Bytes() uint64 { return options.Bytes }
