// A task that has just started uses its memory a moment later: its pages are copied as it writes them, and the host creates its stub
// process when it first runs. On a busy host that takes long, so the memory that a young task is expected to use is reserved meanwhile.

package kernel

import "gvisor.dev/gvisor/pkg/sentry/memlimit"

// youngSwitches is the number of system calls and page faults after which a task is no longer young: about as many as a shell's
// child needs to copy the pages that it writes.
const youngSwitches = 256

// admitYoung reports whether there is memory for t, which is about to start.
func (t *Task) admitYoung(isInit, isProcess bool) bool {
	expected := int64(memlimit.ThreadBytes)
	if isProcess {
		expected = memlimit.ProcessBytes
	}
	if !memlimit.AdmitTaskMemory(isInit, expected) {
		return false
	}
	t.youngMemory = expected
	t.youngSwitches = youngSwitches
	return true
}

// ageYoung counts one system call or page fault of t.
func (t *Task) ageYoung() {
	if t.youngMemory == 0 {
		return
	}
	if t.youngSwitches--; t.youngSwitches <= 0 {
		t.settleYoung()
	}
}

// settleYoung ends the reservation for t, which ran long enough, waits for something, or has ended.
func (t *Task) settleYoung() {
	if t.youngMemory != 0 {
		memlimit.Settle(t.youngMemory)
		t.youngMemory = 0
	}
}
