// A task that has just started uses its memory a moment later: its pages are copied as it writes them, and the host makes its stub
// process when it first runs. On a busy host that moment is long, so what a young task will use counts until it has used it.

package kernel

import "gvisor.dev/gvisor/pkg/sentry/memlimit"

// youngSwitches is how often a task runs, from one system call or page fault to the next, before it counts as used: about what a
// shell's child needs to copy the pages that it writes.
const youngSwitches = 256

// admitYoung says whether there is memory for t, which is about to start.
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

// ageYoung counts that t runs once more.
func (t *Task) ageYoung() {
	if t.youngMemory == 0 {
		return
	}
	if t.youngSwitches--; t.youngSwitches <= 0 {
		t.settleYoung()
	}
}

// settleYoung ends t's youth: it ran long enough, waits for something, or has ended.
func (t *Task) settleYoung() {
	if t.youngMemory != 0 {
		memlimit.Settle(t.youngMemory)
		t.youngMemory = 0
	}
}
