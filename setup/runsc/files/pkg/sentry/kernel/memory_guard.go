// The guard ends programs while the sandbox uses more memory than its limit; tasks wait for it (package memlimit).

package kernel

import (
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/memlimit"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

const (
	// memoryStall bounds how long a task waits at once: the guard may be waiting for what the task holds.
	memoryStall = time.Second
	// A program that is told to end does so within milliseconds, unless the host is busy.
	memoryVictimWait = 5 * time.Second
	memoryPoll       = 2 * time.Millisecond
	// What a program had is given back to the host in the background, and some of it a while later.
	memorySettle = 250 * time.Millisecond
	// memoryGrowth tells a program that goes on taking memory from one that is slow to give it back.
	memoryGrowth = 16 << 20
	// fdMemory is what a file descriptor is taken to stand for: buffers of pipes and sockets are in the sentry's own heap.
	fdMemory = 32 << 10
)

// waitForMemory blocks t until there is memory again. The first process does not wait: it answers for the sandbox.
//
// Preconditions: The caller must be running on the task goroutine, and hold no locks.
func (t *Task) waitForMemory() {
	if t.tg == t.k.globalInit {
		return
	}
	relieved := memlimit.Relieved()
	if memlimit.IsOver() {
		_, _ = t.BlockWithTimeout(relieved, true, memoryStall)
	}
}

// guardMemory ends programs while the sandbox uses more memory than its limit, the largest first.
func (k *Kernel) guardMemory() {
	for range memlimit.Wakes() {
		if !memlimit.IsOver() {
			memlimit.GiveBack(false)
			continue
		}
		memlimit.End(!k.relieveMemory())
	}
}

// relieveMemory says whether the sandbox is below its limit again.
func (k *Kernel) relieveMemory() bool {
	memlimit.GiveBack(false)
	tried := make(map[*ThreadGroup]struct{})
	for memlimit.IsStillOver() {
		if k.isStoppedExternally() {
			// Nothing can end before it goes on.
			time.Sleep(memoryPoll)
			continue
		}
		victim, name := k.largestThreadGroup(tried)
		if victim == nil {
			return false
		}
		tried[victim] = struct{}{}
		pid := k.tasks.Root.IDOfThreadGroup(victim)
		log.Warningf("Out of memory: ending process %d (%s)", pid, name)
		memlimit.Killed(name, int32(pid))
		if err := victim.SendSignal(SignalInfoPriv(linux.SIGKILL)); err != nil {
			continue
		}
		for end := time.Now().Add(memoryVictimWait); !k.hasEnded(victim) && time.Now().Before(end); {
			time.Sleep(memoryPoll)
		}
		waitUntilSettled()
	}
	return true
}

// waitUntilSettled returns when there is room again, when what is used falls no further, or when programs use still more. Sockets
// keep their buffers for a while after their program has ended, which must not be another program's end.
func waitUntilSettled() {
	last := time.Now().Add(memoryVictimWait)
	for first := memlimit.Excess(); time.Now().Before(last); {
		memlimit.GiveBack(true)
		least := memlimit.Excess()
		for end := time.Now().Add(memorySettle); least > 0 && time.Now().Before(end); time.Sleep(memoryPoll) {
			if excess := memlimit.Excess(); excess < least {
				least = excess
				end = time.Now().Add(memorySettle)
			}
		}
		if least == 0 || least > first+memoryGrowth || !memlimit.IsStillOver() {
			return
		}
	}
}

func (k *Kernel) isStoppedExternally() bool {
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	return k.tasks.stopCount > 0
}

func (k *Kernel) hasEnded(tg *ThreadGroup) bool {
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	return tg.liveTasks == 0
}

// largestThreadGroup returns the one that uses most, by the memory of its programs, what the sentry needs for its tasks, and its
// buffers as far as file descriptors tell of them. oom_score_adj weighs as on Linux, but exempts nobody.
func (k *Kernel) largestThreadGroup(except map[*ThreadGroup]struct{}) (*ThreadGroup, string) {
	type use struct {
		bytes int64
		name  string
		mm    *mm.MemoryManager
	}
	uses := make(map[*ThreadGroup]*use)
	for _, t := range k.tasks.Root.Tasks() {
		tg := t.ThreadGroup()
		if _, ok := except[tg]; ok || tg == k.globalInit {
			continue
		}
		var (
			m     *mm.MemoryManager
			table *FDTable
			name  string
		)
		t.WithMuLocked(func(t *Task) {
			m = t.MemoryManager()
			table = t.fdTable
			name = t.image.Name
		})
		if m == nil {
			// It has ended and waits for its parent.
			continue
		}
		u := uses[tg]
		if u == nil {
			u = &use{name: name, bytes: int64(tg.oomScoreAdj.Load()) * int64(memlimit.Bytes()) / 1000}
			uses[tg] = u
		}
		u.bytes += memlimit.TaskBytes
		if u.mm == nil {
			u.mm = m
			u.bytes += int64(m.ResidentSetSize())
			if table != nil {
				u.bytes += int64(table.count()) * fdMemory
			}
		}
	}
	var (
		largest *ThreadGroup
		most    *use
	)
	for tg, u := range uses {
		if most == nil || u.bytes > most.bytes {
			largest, most = tg, u
		}
	}
	if largest == nil {
		return nil, ""
	}
	return largest, most.name
}

// count returns how many descriptors are open.
func (f *FDTable) count() uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fdBitmap.GetNumOnes()
}
