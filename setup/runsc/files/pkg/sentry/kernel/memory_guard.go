// The guard kills programs while the sandbox uses more memory than its limit; tasks wait for it (package memlimit).

package kernel

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/sentry/ktime"
	"gvisor.dev/gvisor/pkg/sentry/memlimit"
	"gvisor.dev/gvisor/pkg/sentry/mm"
)

const (
	// memoryStall bounds one wait of a task: the guard may itself wait for something that the task holds.
	memoryStall = time.Second
	// memoryVictimWait bounds the wait for a killed program, which ends within milliseconds unless the host is busy.
	memoryVictimWait = 5 * time.Second
	memoryPoll       = 2 * time.Millisecond
	// memorySettle is the time without progress after which no more memory of ended programs is expected; it is freed in the background.
	memorySettle = 250 * time.Millisecond
	// memoryGrowth distinguishes programs that keep allocating from memory that is slow to be freed.
	memoryGrowth = 16 << 20
	// swarmPart: a program that uses less than this fraction of the limit counts as small.
	swarmPart = 16
	// fdMemory is the assumed cost of a file descriptor, since the buffers of pipes and sockets are in the sentry's own heap.
	fdMemory = 32 << 10
)

// waitForMemory blocks t until there is memory again. The first process does not wait, since it serves the sandbox's clients.
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

// guardMemory kills programs while the sandbox uses more memory than its limit, the largest first.
func (k *Kernel) guardMemory() {
	for range memlimit.Wakes() {
		memlimit.Pace()
		if !memlimit.IsOver() {
			memlimit.GiveBack(false)
			continue
		}
		memlimit.End(!k.relieveMemory())
	}
}

// relieveMemory kills programs until the sandbox is below its limit; it returns false if there is none left to kill.
func (k *Kernel) relieveMemory() bool {
	memlimit.GiveBack(false)
	tried := make(map[*ThreadGroup]struct{})
	for memlimit.IsStillOver() {
		if k.isStoppedExternally() {
			// A stopped sandbox's programs cannot end, so the guard waits until it continues.
			time.Sleep(memoryPoll)
			continue
		}
		victims := k.memoryVictims(tried)
		if len(victims) == 0 {
			return false
		}
		for _, victim := range victims {
			tried[victim.tg] = struct{}{}
			pid := k.tasks.Root.IDOfThreadGroup(victim.tg)
			log.Warningf("Out of memory: ending process %d (%s)", pid, victim.name)
			memlimit.Killed(victim.name, int32(pid))
			_ = victim.tg.SendSignal(SignalInfoPriv(linux.SIGKILL))
		}
		for end := time.Now().Add(memoryVictimWait); !k.haveEnded(victims) && time.Now().Before(end); {
			time.Sleep(memoryPoll)
		}
		waitUntilSettled()
	}
	return true
}

// waitUntilSettled returns when there is enough memory, when the usage no longer falls, or when programs use still more. Sockets keep
// their buffers for a while after their program has ended; that memory must not cause the kill of another program.
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

func (k *Kernel) haveEnded(victims []*memoryUse) bool {
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	for _, victim := range victims {
		if victim.tg.liveTasks != 0 {
			return false
		}
	}
	return true
}

// memoryUse is the memory use of one program.
type memoryUse struct {
	tg      *ThreadGroup
	session *Session
	name    string
	bytes   int64
	started ktime.Time
	mm      *mm.MemoryManager
}

// memoryVictims returns the program that uses most. If even that one is small, many small ones exceed the limit together: it then
// returns the newest programs of the session that uses most, until they free enough. So a fork bomb ends, and older programs stay.
func (k *Kernel) memoryVictims(except map[*ThreadGroup]struct{}) []*memoryUse {
	uses := k.memoryUses(except)
	var largest *memoryUse
	sessions := make(map[*Session]int64)
	for _, u := range uses {
		if largest == nil || u.bytes > largest.bytes {
			largest = u
		}
		sessions[u.session] += u.bytes
	}
	if largest == nil {
		return nil
	}
	if largest.bytes >= int64(memlimit.Bytes())/swarmPart {
		return []*memoryUse{largest}
	}
	swarm := uses[0].session
	for session, bytes := range sessions {
		if bytes > sessions[swarm] {
			swarm = session
		}
	}
	members := slices.DeleteFunc(uses, func(u *memoryUse) bool { return u.session != swarm })
	slices.SortFunc(members, func(a, b *memoryUse) int { return cmp.Compare(b.started.Nanoseconds(), a.started.Nanoseconds()) })
	freed, wanted := int64(0), int64(memlimit.Excess())
	for i, u := range members {
		if freed += u.bytes; freed >= wanted {
			return members[:i+1]
		}
	}
	return members
}

// memoryUses returns the use of each program: its own memory, the sentry's memory for its tasks, and its buffers as estimated from
// its file descriptors. oom_score_adj is added as on Linux, but exempts no program.
func (k *Kernel) memoryUses(except map[*ThreadGroup]struct{}) []*memoryUse {
	uses := make(map[*ThreadGroup]*memoryUse)
	for _, t := range k.tasks.Root.Tasks() {
		tg := t.ThreadGroup()
		if _, ok := except[tg]; ok || tg == k.globalInit {
			continue
		}
		var (
			m     *mm.MemoryManager
			table *FDTable
			name  string
			start ktime.Time
		)
		t.WithMuLocked(func(t *Task) {
			m = t.MemoryManager()
			table = t.fdTable
			name = t.image.Name
			start = t.startTime
		})
		if m == nil {
			// The task has ended and waits for its parent.
			continue
		}
		u := uses[tg]
		if u == nil {
			u = &memoryUse{
				tg:      tg,
				session: k.sessionOf(tg),
				name:    name,
				bytes:   int64(tg.oomScoreAdj.Load()) * int64(memlimit.Bytes()) / 1000,
				started: start,
			}
			uses[tg] = u
		}
		u.bytes += memlimit.TaskBytes
		if start.Before(u.started) {
			u.started = start
		}
		if u.mm == nil {
			u.mm = m
			u.bytes += int64(m.ResidentSetSize())
			if table != nil {
				u.bytes += int64(table.count()) * fdMemory
			}
		}
	}
	return slices.Collect(maps.Values(uses))
}

// sessionOf returns nil for a program that has just ended.
func (k *Kernel) sessionOf(tg *ThreadGroup) *Session {
	k.tasks.mu.RLock()
	defer k.tasks.mu.RUnlock()
	if tg.processGroup == nil {
		return nil
	}
	return tg.processGroup.session
}

// count returns the number of open descriptors.
func (f *FDTable) count() uint32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fdBitmap.GetNumOnes()
}
