package sentrycmd

import (
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/memlimit"
	"gvisor.dev/gvisor/runsc/cmd/sandboxsetup"
	"gvisor.dev/gvisor/runsc/cmd/util"
	"gvisor.dev/gvisor/runsc/flag"
)

// guestLimits are the flags into which runsc translates the bundle's guest-limits.json.
type guestLimits struct {
	memory     uint64
	hardMemory uint64
	tasks      int
	filesOnly  bool
	fds        sandboxsetup.IntFlags
}

func (g *guestLimits) setFlags(f *flag.FlagSet) {
	f.Uint64Var(&g.memory, "guest-memory", 0, "bytes of the host's memory that the sandbox may use; 0: the sentry keeps no limits")
	f.Uint64Var(&g.hardMemory, "guest-hard-memory", 0, "bytes at which the host's kernel ends the sandbox")
	f.IntVar(&g.tasks, "guest-tasks", 0, "processes and threads that may run in the sandbox")
	f.BoolVar(&g.filesOnly, "guest-files-only", false, "restore on any processor: the programs are not meant to go on")
	f.Var(&g.fds, "guest-limit-fds", "FDs of the files that say what the sandbox uses, of what, and that take what was ended and refused")
}

func (g *guestLimits) enable() {
	if g.memory == 0 {
		return
	}
	fds := g.fds.GetArray()
	if len(fds) != 3 {
		util.Fatalf("--guest-memory expects three --guest-limit-fds, got %d", len(fds))
	}
	if g.filesOnly {
		kernel.AcceptAnyProcessor()
	}
	memlimit.Enable(memlimit.Options{Bytes: g.memory, HardBytes: g.hardMemory, Tasks: g.tasks, Usage: fds[0], Stat: fds[1], Report: fds[2]})
}
