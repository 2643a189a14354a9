package process

// The one place that waits for children: our own, and as PID 1 every orphan of the sandbox.
//
// wait4(-1) returns any child that ended, so no other code in envd may wait. Starting and signalling hold the lock for reading, reaping holds it for writing: a
// pid is never signalled after it was reaped, when it may already be reused.

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Child is one process that envd started; unlike a pid, a Child is never reused.
type Child struct {
	PID    int
	exited func(unix.WaitStatus)
	reaped chan struct{} // closed when it has ended and was reaped
}

// Ended reports whether the process no longer exists.
func (c *Child) Ended() bool {
	select {
	case <-c.reaped:
		return true
	default:
		return false
	}
}

// Reaper collects ended children and notifies the code that started them.
type Reaper struct {
	reaping  sync.RWMutex
	mu       sync.Mutex
	children map[int]*Child
	wake     chan os.Signal
}

func NewReaper() *Reaper {
	r := &Reaper{children: map[int]*Child{}, wake: make(chan os.Signal, 1)}
	signal.Notify(r.wake, unix.SIGCHLD)
	go func() {
		for range r.wake {
			r.collect()
		}
	}()
	return r
}

// Spawn runs start and registers the child before it can be reaped; exited must not block.
func (r *Reaper) Spawn(start func() (int, error), exited func(unix.WaitStatus)) (*Child, error) {
	r.reaping.RLock()
	defer r.reaping.RUnlock()
	pid, err := start()
	if err != nil {
		return nil, err
	}
	preferAsVictim(pid)
	child := &Child{PID: pid, exited: exited, reaped: make(chan struct{})}
	r.mu.Lock()
	r.children[pid] = child
	r.mu.Unlock()
	return child, nil
}

// Signal signals the child's whole process group; it returns false if the child has ended.
func (r *Reaper) Signal(child *Child, sig unix.Signal) (bool, error) {
	r.reaping.RLock()
	defer r.reaping.RUnlock()
	if child.Ended() {
		return false, nil
	}
	return true, unix.Kill(-child.PID, sig)
}

func (r *Reaper) collect() {
	r.reaping.Lock()
	defer r.reaping.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		r.mu.Lock()
		child := r.children[pid]
		delete(r.children, pid)
		r.mu.Unlock()
		if child != nil {
			close(child.reaped)
			child.exited(status)
		}
	}
}

// Stop ends every child: SIGTERM, then SIGKILL after the bound. For PID 1 that is every process of the sandbox.
func (r *Reaper) Stop(bound time.Duration) {
	r.signalAll(unix.SIGTERM)
	deadline := time.Now().Add(bound)
	for wait := time.Millisecond; time.Now().Before(deadline); wait = min(2*wait, 50*time.Millisecond) {
		r.collect()
		if r.childless() {
			return
		}
		time.Sleep(wait)
	}
	r.signalAll(unix.SIGKILL)
	r.collect()
}

func (r *Reaper) signalAll(sig unix.Signal) {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, sig)
		return
	}
	r.reaping.RLock()
	defer r.reaping.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range r.children {
		_ = unix.Kill(-pid, sig)
	}
}

func (r *Reaper) childless() bool {
	if os.Getpid() == 1 {
		// This check must not reap, since an end that is collected here would not be reported.
		return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == unix.ECHILD
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.children) == 0
}
