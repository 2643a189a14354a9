// This file reads the memory usage that the host counts, and returns the sentry's garbage to the host.

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
	// leastGarbage is the amount of garbage that makes such a run worthwhile.
	leastGarbage = 8 * mebibyte
	// tidyHeap is the heap size from which a collection after the end of programs is worthwhile; tidyPeriod bounds how often it runs.
	tidyHeap   = 48 * mebibyte
	tidyPeriod = 5 * time.Second
	// leastHeapRoom is the growth that the heap always has left. paceStep is the smallest change of the heap's limit that is applied,
	// since each change stops all tasks.
	leastHeapRoom = 16 * mebibyte
	paceStep      = 8 * mebibyte
)

var (
	gaveBack atomic.Int64
	isTidy   atomic.Bool
	// heapLimit is the collector's current limit; 0 means none, so it collects when the heap has doubled. Only the guard uses it.
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

// filePages returns the bytes of the host's file cache that are counted: inactive ones, and all. The kernel reclaims both before it
// kills a program.
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
	// cgroup v1 prefixes its hierarchical counters with total_; cgroup v2 does not.
	idle, ok := field("total_inactive_file")
	if ok {
		active, _ := field("total_active_file")
		return idle, idle + active
	}
	idle, _ = field("inactive_file")
	active, _ := field("active_file")
	return idle, idle + active
}

// GiveBack returns the sentry's own garbage to the host. Unless isUrgent, it does so only if there is enough garbage and not too often.
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

// Pace limits the heap to the memory that is left, so that garbage does not use the programs' memory. Only the guard calls it.
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

// heapBytes returns the size that the collector compares with its limit.
func heapBytes() int64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}

// TaskEnded schedules a collection of a large heap: after the programs have ended, little is allocated that would trigger one.
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

// giveBackOnce returns garbage to the host unless that was done lately; of many concurrent callers, one does it.
func giveBackOnce() bool {
	last := gaveBack.Load()
	if now := time.Now().UnixNano(); now-last < int64(giveBackPeriod) || !gaveBack.CompareAndSwap(last, now) {
		return false
	}
	debug.FreeOSMemory()
	return true
}

// Usage returns the values for /proc/meminfo: the limit, the usage that the host counts, and the inactive and all file pages in it.
// ok is false if there is no limit.
func Usage() (limit, now, idleFiles, files uint64, ok bool) {
	if !enabled {
		return 0, 0, 0, 0, false
	}
	idleFiles, files = filePages()
	return options.Bytes, current(), idleFiles, files, true
}
