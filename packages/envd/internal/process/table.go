package process

// The processes: the running ones, and for half a minute those that have just ended.

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"svc/envd/internal/failure"
)

const (
	maxProcesses = 2048
	// A client that connects late still learns how it ended.
	retainEnded      = 30 * time.Second
	maxEndedRetained = 1024
)

type table struct {
	mu      sync.Mutex
	slots   int // processes with an open descriptor, listed or not
	running map[int]*running
	ended   []*running // oldest first
}

func newTable() *table { return &table{running: map[int]*running{}} }

func (t *table) reserve() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots >= maxProcesses {
		return failure.New(failure.ResourceExhausted, "%d processes run already, the most one sandbox may start", maxProcesses)
	}
	t.slots++
	return nil
}

func (t *table) release() {
	t.mu.Lock()
	t.slots--
	t.mu.Unlock()
}

func (t *table) add(p *running) {
	t.mu.Lock()
	t.running[p.pid()] = p
	t.mu.Unlock()
}

func (t *table) retire(p *running) {
	t.mu.Lock()
	if t.running[p.pid()] == p {
		delete(t.running, p.pid())
	}
	t.ended = append(t.ended, p)
	if over := len(t.ended) - maxEndedRetained; over > 0 {
		t.ended = slices.Delete(t.ended, 0, over)
	}
	t.mu.Unlock()
	time.AfterFunc(retainEnded, func() {
		t.mu.Lock()
		t.ended = slices.DeleteFunc(t.ended, func(other *running) bool { return other == p })
		t.mu.Unlock()
	})
}

func (t *table) list() []*running {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*running, 0, len(t.running))
	for _, p := range t.running {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b *running) int { return cmp.Compare(a.pid(), b.pid()) })
	return all
}

func (s *selector) matches(p *running) bool {
	if s.PID != nil {
		return p.pid() == int(*s.PID)
	}
	return p.tag != nil && *p.tag == *s.Tag
}

// find returns a running process, or with alsoEnded the newest that matches.
func (t *table) find(s *selector, alsoEnded bool) (*running, error) {
	if s == nil || (s.PID == nil && s.Tag == nil) {
		return nil, failure.New(failure.InvalidArgument, "the selector names neither a pid nor a tag")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.PID != nil {
		if p, ok := t.running[int(*s.PID)]; ok {
			return p, nil
		}
	} else {
		for _, p := range t.running {
			if s.matches(p) {
				return p, nil
			}
		}
	}
	if alsoEnded {
		for _, p := range slices.Backward(t.ended) {
			if s.matches(p) {
				return p, nil
			}
		}
	}
	if s.PID != nil {
		return nil, failure.New(failure.NotFound, "process with pid %d not found", *s.PID)
	}
	return nil, failure.New(failure.NotFound, "process with tag '%s' not found", *s.Tag)
}
