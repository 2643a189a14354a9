package process

// The process service: its routes, and the implementation of each call.

import (
	"context"
	"errors"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/connect"
	"svc/envd/internal/failure"
)

// Service answers /process.Process/….
type Service struct {
	reaper   *Reaper
	table    *table
	journal  *journal
	defaults func() Defaults
}

// Defaults are used for a process of the sandbox unless its request says otherwise.
type Defaults struct {
	Envs map[string]string
	User string
	// Workdir is the template's; a template without one has its user's home here.
	Workdir string
}

// NewService creates the service; defaults returns the current values.
func NewService(reaper *Reaper, defaults func() Defaults) *Service {
	return &Service{reaper: reaper, table: newTable(), journal: newJournal(), defaults: defaults}
}

// Routes registers every call.
func (s *Service) Routes(mux *http.ServeMux) {
	for name, handler := range map[string]http.Handler{
		"Start":       connect.ServerStream(s.start),
		"Connect":     connect.ServerStream(s.connect),
		"List":        connect.Unary(s.list),
		"SendInput":   connect.Unary(s.sendInput),
		"StreamInput": connect.ClientStream(s.streamInput),
		"Update":      connect.Unary(s.update),
		"SendSignal":  connect.Unary(s.sendSignal),
		"CloseStdin":  connect.Unary(s.closeStdin),
	} {
		mux.Handle("/process.Process/"+name, handler)
	}
	mux.HandleFunc("GET /svc/log", s.journal.serve)
}

func (s *Service) start(ctx context.Context, request *startRequest, stream *connect.Stream) error {
	who, err := account.Of(ctx)
	if err != nil {
		return err
	}
	p, err := s.spawn(who, request)
	if err != nil {
		return err
	}
	// The limit applies to the process, not to the stream: it remains in effect after the client has left.
	if timeout, _ := connect.Timeout(stream.Request); timeout > 0 {
		p.limit = time.AfterFunc(timeout, func() { _, _ = s.reaper.Signal(p.child, unix.SIGKILL) })
	}
	listening, err := p.out.listen() // before the first byte is read
	go p.carry(func() { s.table.retire(p) }, s.table.release)
	if err != nil {
		return err
	}
	return follow(ctx, stream, p, listening)
}

func (s *Service) spawn(who account.Account, request *startRequest) (*running, error) {
	defaults := s.defaults()
	l, err := prepare(who, request.Process, defaults.Envs, defaults.workdirOf(who))
	if err != nil {
		return nil, err
	}
	if err := s.table.reserve(); err != nil {
		return nil, err
	}
	var w *wires
	if request.PTY != nil {
		w, err = l.wireTerminal(who, request.PTY.Size)
	} else {
		w, err = l.wirePipes(who, request.Stdin == nil || *request.Stdin)
	}
	if err != nil {
		s.table.release()
		return nil, err
	}
	p := newRunning(request.Process, request.Tag, w)
	note := s.journal.note(who, request.Process)
	p.child, err = s.reaper.Spawn(func() (int, error) {
		pid, err := syscall.ForkExec(l.path, l.argv, &l.attr)
		if err == nil {
			note.started(pid) // recorded here, since its end may be recorded at once
		}
		return pid, err
	}, func(status unix.WaitStatus) {
		note.ended(status)
		p.exit <- status
	})
	w.closeTheirs()
	if err != nil {
		w.closeOurs()
		s.table.release()
		return nil, cannotStart(err, request.Process.Cmd, who)
	}
	s.table.add(p)
	return p, nil
}

func cannotStart(err error, cmd string, who account.Account) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.E2BIG) {
		return failure.New(failure.InvalidArgument, "cannot start '%s': %w", cmd, err)
	}
	return failure.About(err, "cannot start '%s' as user '%s'", cmd, who.Name)
}

func (s *Service) connect(ctx context.Context, request *connectRequest, stream *connect.Stream) error {
	p, err := s.table.find(request.Process, true)
	if err != nil {
		return err
	}
	listening, err := p.out.listen()
	if err != nil {
		return err
	}
	return follow(ctx, stream, p, listening)
}

// follow streams a process's events to one client, from now until the process ends or the client leaves.
func follow(ctx context.Context, stream *connect.Stream, p *running, listening *listener) error {
	defer p.out.leave(listening)
	started := eventResponse{processEvent{Start: &startEvent{uint32(p.pid())}}}
	if err := stream.Send(connect.NewFrame(started)); err != nil {
		return err
	}
	interval := connect.Keepalive(stream.Request)
	alive := time.NewTicker(interval)
	defer alive.Stop()
	for {
		select {
		case frame, more := <-listening.frames:
			if !more {
				return finish(ctx, stream, p)
			}
			if err := stream.Send(frame); err != nil {
				return err
			}
			alive.Reset(interval)
		case <-alive.C:
			if err := stream.Send(keepaliveFrame); err != nil {
				return err
			}
		case <-listening.cut:
			return failure.New(failure.ResourceExhausted, "the client took no output for %s and was cut off; the process goes on", stallLimit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func finish(ctx context.Context, stream *connect.Stream, p *running) error {
	// A kill by the time limit must be reported as a time-out, even if the end event comes first.
	if deadline, limited := ctx.Deadline(); limited && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return stream.Send(connect.NewFrame(eventResponse{processEvent{End: p.out.end}}))
}
