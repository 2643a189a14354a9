package agent

// Notifies programs inside that they run in a copy: by the generation file, and by hooks that the template contains.

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
	"svc/envd/internal/process"
)

const (
	generationFile = "run/svc/generation"
	hookFolder     = "etc/svc/on-copy.d"
	maxHooks       = 64
	hookPath       = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// publish writes the generation in place, so that programs that watch the file are notified, and those that have mapped it read the new value.
func publish(root, generation string) error {
	path := filepath.Join(root, generationFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	text := generation + "\n"
	_, err = file.WriteAt([]byte(text), 0)
	return errors.Join(err, file.Truncate(int64(len(text))), file.Close())
}

// runHooks runs the programs of the folder in the order of their names, all of them within the bound; the first failure stops it.
func runHooks(root string, identity *Identity, reaper *process.Reaper, bound time.Duration) error {
	folder := filepath.Join(root, hookFolder)
	entries, err := os.ReadDir(folder)
	if os.IsNotExist(err) {
		return nil
	}
	if err == nil {
		err = onlyRoots(folder)
	}
	if err != nil {
		return hookFailure(err)
	}
	if len(entries) > maxHooks {
		return failure.New(failure.FailedPrecondition, "on copy: %s holds %d entries; the maximum is %d", folder, len(entries), maxHooks)
	}
	env := []string{hookPath, "HOME=/root", "USER=root", "LOGNAME=root", "SVC_SANDBOX_ID=" + identity.SandboxID, "SVC_GENERATION=" + identity.Generation}
	deadline := time.Now().Add(bound)
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		info, err := os.Stat(path)
		if err != nil || strings.HasPrefix(entry.Name(), ".") || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if err := onlyRoots(path); err != nil {
			return hookFailure(err)
		}
		if err := reaper.Script(path, env, max(time.Until(deadline), time.Millisecond)); err != nil {
			return hookFailure(err)
		}
	}
	return nil
}

// onlyRoots requires that only root can write a program that runs as root.
func onlyRoots(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || (stat.Uid != 0 && int(stat.Uid) != os.Geteuid()) || info.Mode()&0o022 != 0 {
		return failure.New(failure.FailedPrecondition, "%s must belong to root and be writable by nobody else", path)
	}
	return nil
}

func hookFailure(err error) error {
	return failure.New(failure.FailedPrecondition, "on copy: %w", err)
}
