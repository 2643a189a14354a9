// This file writes how often a limit took effect, for the sandbox's owner.

package memlimit

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sync"
)

const (
	reportBytes  = 256
	reportPeriod = 100 * time.Millisecond
)

var (
	reportMu       sync.Mutex
	kills          uint64
	taskRefusals   uint64
	memoryRefusals uint64
	lastProgram    string
	lastPID        int32
	isReporting    atomic.Bool
)

// Killed notes a program that the guard ended.
func Killed(program string, pid int32) {
	reportMu.Lock()
	kills++
	lastProgram = program
	lastPID = pid
	reportMu.Unlock()
	report()
}

// refuse counts a refusal. It writes the report at most ten times a second, since a program may cause refusals in a loop.
func refuse(count *uint64) {
	reportMu.Lock()
	*count++
	reportMu.Unlock()
	if isReporting.CompareAndSwap(false, true) {
		time.AfterFunc(reportPeriod, func() {
			isReporting.Store(false)
			report()
		})
	}
}

// RefusedTask notes a task that another limit refused.
func RefusedTask() {
	if enabled {
		refuse(&taskRefusals)
	}
}

// report writes the counts as lines of NAME VALUE, padded to a fixed size so that each write replaces the whole former report.
func report() {
	reportMu.Lock()
	defer reportMu.Unlock()
	program := make([]byte, 0, len(lastProgram))
	for _, c := range []byte(lastProgram) {
		if c <= ' ' || c > '~' {
			c = '_'
		}
		program = append(program, c)
	}
	text := fmt.Sprintf("memory_kills %d\ntask_refusals %d\nmemory_refusals %d\npid %d\nprogram %s\n", kills, taskRefusals, memoryRefusals, lastPID, program)
	buf := bytes.Repeat([]byte(" "), reportBytes)
	copy(buf, text)
	unix.Pwrite(options.Report, buf, 0)
}
