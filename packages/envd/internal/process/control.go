package process

// Calls on a running process: list, input, resize, signal.

import (
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const killSettles = 10 * time.Second

func (s *Service) list(context.Context, *listRequest) (*listResponse, error) {
	response := &listResponse{}
	for _, p := range s.table.list() {
		if p.child.Ended() { // only its last output is still being sent
			continue
		}
		response.Processes = append(response.Processes, processInfo{Config: p.config, PID: uint32(p.pid()), Tag: p.tag})
	}
	return response, nil
}

func (s *Service) sendInput(ctx context.Context, request *sendInputRequest) (*empty, error) {
	p, err := s.table.find(request.Process, false)
	if err != nil {
		return nil, err
	}
	return &empty{}, p.write(ctx, request.Input)
}

func (s *Service) streamInput(ctx context.Context, next func() (*streamInputRequest, error)) (*empty, error) {
	var p *running
	for {
		message, err := next()
		switch {
		case errors.Is(err, io.EOF):
			return &empty{}, nil
		case err != nil:
			return nil, err
		case message.Start != nil:
			if p, err = s.table.find(message.Start.Process, false); err != nil {
				return nil, err
			}
		case message.Data != nil:
			if p == nil {
				return nil, failure.New(failure.InvalidArgument, "data came before start named the process")
			}
			if err := p.write(ctx, message.Data.Input); err != nil {
				return nil, err
			}
		}
	}
}

func (s *Service) update(_ context.Context, request *updateRequest) (*empty, error) {
	p, err := s.table.find(request.Process, false)
	if err != nil {
		return nil, err
	}
	if request.PTY == nil || request.PTY.Size == nil {
		return &empty{}, nil
	}
	if p.wires.tty == nil {
		return nil, failure.New(failure.FailedPrecondition, "process %d has no terminal to resize", p.pid())
	}
	return &empty{}, failure.About(resize(p.wires.tty, request.PTY.Size), "cannot resize the terminal of process %d", p.pid())
}

func (s *Service) sendSignal(ctx context.Context, request *sendSignalRequest) (*empty, error) {
	p, err := s.table.find(request.Process, false)
	if err != nil {
		return nil, err
	}
	sig := unix.Signal(request.Signal)
	if sig != unix.SIGTERM && sig != unix.SIGKILL {
		return nil, failure.New(failure.InvalidArgument, "signal %d cannot be sent: use SIGNAL_SIGTERM or SIGNAL_SIGKILL", request.Signal)
	}
	alive, err := s.reaper.Signal(p.child, sig)
	if !alive {
		return nil, failure.New(failure.NotFound, "process with pid %d not found", p.pid())
	}
	if err == nil && sig == unix.SIGKILL {
		// A client that kills a process and then lists must not find it.
		bound := time.NewTimer(killSettles)
		defer bound.Stop()
		select {
		case <-p.child.reaped:
		case <-bound.C: // it is blocked in the kernel
		case <-ctx.Done():
		}
	}
	return &empty{}, failure.About(err, "cannot signal process %d", p.pid())
}

func (s *Service) closeStdin(_ context.Context, request *closeStdinRequest) (*empty, error) {
	p, err := s.table.find(request.Process, false)
	if err != nil {
		return nil, err
	}
	if p.wires.tty != nil {
		return nil, failure.New(failure.FailedPrecondition, "process %d has a terminal: send Ctrl+D (0x04) as pty input instead", p.pid())
	}
	if p.wires.stdin == nil {
		return nil, failure.New(failure.FailedPrecondition, "process %d was started without stdin", p.pid())
	}
	p.closeStdin()
	return &empty{}, nil
}
