package process

// Runs a program for envd itself, as root: to its end, within a time limit, keeping the end of its output.

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keptWords = 2 << 10
	// A program that it left in the background may keep its output open for longer.
	silenceAfterScript = 200 * time.Millisecond
	killBound          = 2 * time.Second
)

// Script runs path without arguments. The error contains the output and, unless it was 0, the exit status.
func (r *Reaper) Script(path string, env []string, bound time.Duration) error {
	in, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	out, theirs, err := pipe(false)
	if err != nil {
		return err
	}
	defer out.Close()
	attr := &syscall.ProcAttr{Dir: "/", Env: env, Files: []uintptr{uintptr(in), uintptr(theirs), uintptr(theirs)}, Sys: &syscall.SysProcAttr{Setsid: true}}
	exit := make(chan unix.WaitStatus, 1)
	child, err := r.Spawn(func() (int, error) { return syscall.ForkExec(path, []string{path}, attr) }, func(status unix.WaitStatus) { exit <- status })
	_ = unix.Close(theirs)
	if err != nil {
		return fmt.Errorf("%s cannot be run: %w", path, err)
	}
	words := make(chan string, 1)
	go func() { words <- lastWords(out) }()
	ended := ""
	select {
	case status := <-exit:
		ended = scriptEnd(status)
	case <-time.After(bound):
		ended = fmt.Sprintf("did not end within %s", bound.Round(time.Millisecond))
		_, _ = r.Signal(child, unix.SIGKILL)
		select {
		case <-exit:
		case <-time.After(killBound):
		}
	}
	if ended == "" {
		return nil
	}
	_ = out.SetReadDeadline(time.Now().Add(silenceAfterScript))
	return fmt.Errorf("%s %s: %s", path, ended, <-words)
}

func scriptEnd(status unix.WaitStatus) string {
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		return ""
	case status.Exited():
		return fmt.Sprintf("ended with exit code %d", status.ExitStatus())
	}
	return "was ended by signal " + status.Signal().String()
}

func lastWords(from *os.File) string {
	var kept []byte
	chunk := make([]byte, 4<<10)
	for {
		n, err := from.Read(chunk)
		kept = append(kept, chunk[:n]...)
		kept = kept[max(0, len(kept)-keptWords):]
		if err != nil {
			break
		}
	}
	if len(kept) == 0 {
		return "it said nothing"
	}
	return string(kept)
}
