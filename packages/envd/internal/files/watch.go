package files

// The two forms of a watch: a stream, and a queue that the client polls.

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"svc/envd/internal/connect"
	"svc/envd/internal/failure"
)

const (
	maxWatchers      = 100 // the kernel gives a user 128 inotify queues by default
	streamedEvents   = 256 // between the kernel's queue and a stream
	polledEvents     = 8192
	forgottenWatcher = time.Hour // a watcher that was not polled for this long is dropped when the limit is reached
)

var watchKeepalive = connect.NewFrame(watchEvent{Keepalive: &empty{}})

// watchers counts all trees and stores the polled ones.
type watchers struct {
	mu    sync.Mutex
	open  int
	byID  map[string]*polled
	clock func() time.Time
}

type polled struct {
	tree     *tree
	mu       sync.Mutex
	events   []event
	failed   error
	lastPoll time.Time
}

func newWatchers() *watchers { return &watchers{byID: map[string]*polled{}, clock: time.Now} }

func (ws *watchers) reserve() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.open >= maxWatchers {
		for id, p := range ws.byID {
			if ws.clock().Sub(p.polledAt()) > forgottenWatcher {
				p.tree.close()
				delete(ws.byID, id)
			}
		}
		return failure.New(failure.ResourceExhausted, "%d directories are watched already, the most one sandbox may: stop a watch or call RemoveWatcher", maxWatchers)
	}
	ws.open++
	return nil
}

func (ws *watchers) release() {
	ws.mu.Lock()
	ws.open--
	ws.mu.Unlock()
}

func (p *polled) polledAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastPoll
}

func (s *Service) openTree(ctx context.Context, request *watchRequest) (*tree, error) {
	who, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.watchers.reserve(); err != nil {
		return nil, err
	}
	t, err := openTree(who, request)
	if err != nil {
		s.watchers.release()
	}
	return t, err
}

func (s *Service) watchDir(ctx context.Context, request *watchRequest, stream *connect.Stream) error {
	t, err := s.openTree(ctx, request)
	if err != nil {
		return err
	}
	defer s.watchers.release()
	defer t.close()
	events, over := make(chan event, streamedEvents), make(chan error, 1)
	t.emit = func(e event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() { over <- t.run() }()

	if err := stream.Send(connect.NewFrame(watchEvent{Start: &empty{}})); err != nil {
		return err
	}
	interval := connect.Keepalive(stream.Request)
	alive := time.NewTicker(interval)
	defer alive.Stop()
	for {
		select {
		case e := <-events:
			if err := stream.Send(connect.NewFrame(watchEvent{Filesystem: &e})); err != nil {
				return err
			}
			alive.Reset(interval)
		case <-alive.C:
			if err := stream.Send(watchKeepalive); err != nil {
				return err
			}
		case err := <-over:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Service) createWatcher(ctx context.Context, request *watchRequest) (*watcherCreated, error) {
	t, err := s.openTree(ctx, request)
	if err != nil {
		return nil, err
	}
	id := rand.Text()
	p := &polled{tree: t, lastPoll: s.watchers.clock()}
	t.emit = func(e event) bool {
		p.add(e)
		return true
	}
	s.watchers.mu.Lock()
	s.watchers.byID[id] = p
	s.watchers.mu.Unlock()
	go func() {
		err := t.run()
		p.mu.Lock()
		p.failed = err
		p.mu.Unlock()
		t.close()
		s.watchers.release()
	}()
	return &watcherCreated{WatcherID: id}, nil
}

func (p *polled) add(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) == polledEvents {
		p.events = p.events[1:]
		p.failed = failure.New(failure.ResourceExhausted, "older events were dropped: a watcher keeps %d, poll it more often", polledEvents)
	}
	p.events = append(p.events, e)
}

func (s *Service) find(request *watcherRequest, remove bool) (*polled, error) {
	s.watchers.mu.Lock()
	defer s.watchers.mu.Unlock()
	p, ok := s.watchers.byID[request.id()]
	if !ok {
		return nil, failure.New(failure.NotFound, "watcher with id '%s' not found", request.id())
	}
	if remove {
		delete(s.watchers.byID, request.id())
	}
	return p, nil
}

// getWatcherEvents returns the queued events; a loss is reported once, before the events that came after it.
func (s *Service) getWatcherEvents(_ context.Context, request *watcherRequest) (*watcherEvents, error) {
	p, err := s.find(request, false)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lastPoll = s.watchers.clock()
	if err := p.failed; err != nil {
		p.failed = nil
		return nil, err
	}
	answer := &watcherEvents{Events: p.events}
	p.events = nil
	return answer, nil
}

func (s *Service) removeWatcher(_ context.Context, request *watcherRequest) (*empty, error) {
	p, err := s.find(request, true)
	if err != nil {
		return nil, err
	}
	p.tree.close()
	return &empty{}, nil
}
