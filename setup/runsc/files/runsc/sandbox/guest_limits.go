package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"gvisor.dev/gvisor/runsc/donation"
)

// guestLimitsFile is in the bundle. Older versions of runsc ignore it, so their checkpoints start as before.
const guestLimitsFile = "guest-limits.json"

// guestLimits are limits that the sentry itself enforces inside a sandbox, below those of its cgroup.
type guestLimits struct {
	MemoryBytes     uint64 `json:"memoryBytes"`
	HardMemoryBytes uint64 `json:"hardMemoryBytes"`
	Tasks           int    `json:"tasks"`
	UsageFile       string `json:"usageFile"`
	StatFile        string `json:"statFile"`
	ReportFile      string `json:"reportFile"`
	// FilesOnly states that the restored programs will not run, so the processor may lack features that they use.
	FilesOnly bool `json:"filesOnly"`
}

// donateGuestLimits passes the limits in the bundle to the sentry. It returns the memory limit; 0 if the bundle has none.
func donateGuestLimits(cmd *exec.Cmd, donations *donation.Agency, bundle string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(bundle, guestLimitsFile))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var limits guestLimits
	if err := json.Unmarshal(text, &limits); err != nil {
		return 0, fmt.Errorf("reading %s: %w", guestLimitsFile, err)
	}
	for _, part := range []struct {
		path  string
		flags int
	}{{limits.UsageFile, os.O_RDONLY}, {limits.StatFile, os.O_RDONLY}, {limits.ReportFile, os.O_WRONLY | os.O_CREATE | os.O_TRUNC}} {
		file, err := os.OpenFile(part.path, part.flags, 0600)
		if err != nil {
			return 0, fmt.Errorf("opening a file of %s: %w", guestLimitsFile, err)
		}
		donations.DonateAndClose("guest-limit-fds", file)
	}
	cmd.Args = append(cmd.Args,
		"--guest-memory", strconv.FormatUint(limits.MemoryBytes, 10),
		"--guest-hard-memory", strconv.FormatUint(limits.HardMemoryBytes, 10),
		"--guest-tasks", strconv.Itoa(limits.Tasks),
		"--guest-files-only="+strconv.FormatBool(limits.FilesOnly))
	return limits.MemoryBytes, nil
}
