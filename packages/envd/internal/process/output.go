package process

// Sends a process's output to its listeners.
//
//	pipe ──read──▶ publish ──▶ queue of listener 1 (bounded) ──▶ its stream
//	                      └──▶ queue of listener 2
//
// Without listeners the chunk is dropped. A slow listener blocks the process, as a full pipe would; one that reads nothing for stallLimit is disconnected, so
// that a dead client cannot block the process forever.

import (
	"sync"
	"time"

	"svc/envd/internal/connect"
	"svc/envd/internal/failure"
)

const (
	queuedChunks = 16
	maxListeners = 64
	stallLimit   = 30 * time.Second
)

type listener struct {
	frames chan connect.Frame
	left   chan struct{} // closed by the listener when it leaves
	cut    chan struct{} // closed by the output if the listener was too slow
}

type output struct {
	mu        sync.Mutex
	listeners map[*listener]struct{}
	end       *endEvent // set once; the listeners' queues are closed with it
	busy      sync.RWMutex
}

func newOutput() *output { return &output{listeners: map[*listener]struct{}{}} }

// listen subscribes from this point on; after the end it returns a closed queue.
func (o *output) listen() (*listener, error) {
	l := &listener{frames: make(chan connect.Frame, queuedChunks), left: make(chan struct{}), cut: make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.end != nil:
		close(l.frames)
	case len(o.listeners) >= maxListeners:
		return nil, failure.New(failure.ResourceExhausted, "%d clients listen to this process already", maxListeners)
	default:
		o.listeners[l] = struct{}{}
	}
	return l, nil
}

func (o *output) leave(l *listener) {
	close(l.left)
	o.mu.Lock()
	delete(o.listeners, l)
	o.mu.Unlock()
}

func (o *output) publish(channel string, chunk []byte) {
	o.busy.RLock()
	defer o.busy.RUnlock()
	o.mu.Lock()
	if o.end != nil || len(o.listeners) == 0 {
		o.mu.Unlock()
		return
	}
	current := make([]*listener, 0, len(o.listeners))
	for l := range o.listeners {
		current = append(current, l)
	}
	o.mu.Unlock()
	frame := dataFrame(channel, chunk)
	for _, l := range current {
		if !l.offer(frame) {
			o.mu.Lock()
			if _, there := o.listeners[l]; there {
				delete(o.listeners, l)
				close(l.cut)
			}
			o.mu.Unlock()
		}
	}
}

func (l *listener) offer(frame connect.Frame) bool {
	select {
	case l.frames <- frame:
		return true
	default:
	}
	stalled := time.NewTimer(stallLimit)
	defer stalled.Stop()
	select {
	case l.frames <- frame:
		return true
	case <-l.left:
		return true
	case <-l.cut: // by the reader of the other pipe
		return true
	case <-stalled.C:
		return false
	}
}

// close ends every stream after the chunks that were already published.
func (o *output) close(end *endEvent) {
	o.busy.Lock() // no publish is in progress any more
	defer o.busy.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end = end
	for l := range o.listeners {
		close(l.frames)
	}
	clear(o.listeners)
}
