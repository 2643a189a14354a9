// This file reads what the host counts, and gives the sentry's garbage back to it.

package memlimit

import (
	"bytes"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// giveBackPeriod bounds how often the garbage collector runs before the limit is reached.
	giveBackPeriod = time.Second
	// leastGarbage makes such a run worthwhile.
	leastGarbage = 8 * mebibyte
	// tidyHeap is a heap that is worth a collection after programs have ended, and tidyPeriod bounds how often.
	tidyHeap   = 48 * mebibyte
	tidyPeriod = 5 * time.Second
	// leastHeapRoom is what the heap may always grow by, and paceStep is the change of its limit that is worth a stop of all tasks.
	leastHeapRoom = 16 * mebibyte
	paceStep      = 8 * mebibyte
)

var (
	gaveBack atomic.Int64
	isTidy   atomic.Bool
	// heapLimit is what the collector keeps the heap below; 0: it collects when the heap has doubled. Exclusive to the guard.
	heapLimit int64
)

func readFile(fd int, buf []byte) []byte {
	n, err := unix.Pread(fd, buf, 0)
	if err != nil || n < 0 {
		return nil
	}
	return buf[:n]
}

func current() uint64 {
	var buf [32]byte
	n, _ := strconv.ParseUint(string(bytes.TrimSpace(readFile(options.Usage, buf[:]))), 10, 64)
	return n
}

// filePages returns the pages of the host's files that are counted: idle ones, and all of them. The kernel takes both back before
// it ends a program.
func filePages() (idle, all uint64) {
	var buf [8192]byte
	text := readFile(options.Stat, buf[:])
	field := func(name string) (uint64, bool) {
		at := bytes.Index(text, []byte("\n"+name+" "))
		if at < 0 {
			return 0, false
		}
		rest := text[at+len(name)+2:]
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			rest = rest[:end]
		}
		n, err := strconv.ParseUint(string(rest), 10, 64)
		return n, err == nil
	}
	// Version 1 of control groups says total_ of what version 2 says without.
	idle, ok := field("total_inactive_file")
	if ok {
		active, _ := field("total_active_file")
		return idle, idle + active
	}
	idle, _ = field("inactive_file")
	active, _ := field("active_file")
	return idle, idle + active
}

// GiveBack returns the sentry's own garbage to the host, where it is worth the work.
func GiveBack(isUrgent bool) {
	if !isUrgent && gaveBackLately() {
		return
	}
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}
	metrics.Read(samples)
	held := samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64()
	if live := samples[3].Value.Uint64(); !isUrgent && held < live+leastGarbage {
		return
	}
	debug.FreeOSMemory()
	gaveBack.Store(time.Now().UnixNano())
}

// Pace has the garbage collector keep the heap in the room that is left, so that garbage does not use the programs' memory. Called
// by the guard.
func Pace() {
	limit := int64(0)
	if now := used.Load(); now > near() {
		room := int64(options.Bytes) - int64(now) - int64(forkReserve())
		limit = heapBytes() + max(room, leastHeapRoom)
	}
	if change := limit - heapLimit; limit != 0 && heapLimit != 0 && -paceStep < change && change < paceStep {
		return
	}
	if limit == heapLimit {
		return
	}
	heapLimit = limit
	if limit == 0 {
		limit = math.MaxInt64
	}
	debug.SetMemoryLimit(limit)
}

// heapBytes is what the collector compares with its limit.
func heapBytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// TaskEnded has a large heap collected soon: nothing else would once the programs have ended.
func TaskEnded() {
	if enabled && isTidy.CompareAndSwap(false, true) {
		time.AfterFunc(tidyPeriod, func() {
			isTidy.Store(false)
			if heapBytes() > tidyHeap {
				GiveBack(false)
			}
			Look()
			wake()
		})
	}
}

func gaveBackLately() bool { return time.Now().UnixNano()-gaveBack.Load() < int64(giveBackPeriod) }

// giveBackOnce gives back unless that was done lately; of many tasks that ask at once, one does it.
func giveBackOnce() bool {
	last := gaveBack.Load()
	if now := time.Now().UnixNano(); now-last < int64(giveBackPeriod) || !gaveBack.CompareAndSwap(last, now) {
		return false
	}
	debug.FreeOSMemory()
	return true
}

// Usage returns what /proc/meminfo says: the limit, what the host counts of it, and how much of that are pages of files, idle ones
// and all. ok is false where there is no limit.
func Usage() (limit, now, idleFiles, files uint64, ok bool) {
	if !enabled {
		return 0, 0, 0, 0, false
	}
	idleFiles, files = filePages()
	return options.Bytes, current(), idleFiles, files, true
}
