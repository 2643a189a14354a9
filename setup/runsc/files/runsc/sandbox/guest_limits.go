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

// guestLimitsFile lies in the bundle. Older versions of runsc do not look for it, so that what they checkpointed starts as before.
const guestLimitsFile = "guest-limits.json"

// guestLimits are what the sentry keeps inside a sandbox, below the limits of its control group.
type guestLimits struct {
	MemoryBytes     uint64 `json:"memoryBytes"`
	HardMemoryBytes uint64 `json:"hardMemoryBytes"`
	Tasks           int    `json:"tasks"`
	UsageFile       string `json:"usageFile"`
	StatFile        string `json:"statFile"`
	ReportFile      string `json:"reportFile"`
	// FilesOnly says that the restored programs are not meant to go on, so that the processor may lack what they use.
	FilesOnly bool `json:"filesOnly"`
}

// donateGuestLimits hands the limits of the bundle to the sentry, and returns its memory; 0 where it names none.
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
