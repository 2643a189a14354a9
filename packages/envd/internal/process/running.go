package process

// One process from its start to the end of its output.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const (
	pipeChunkBytes = 32 << 10
	ttyChunkBytes  = 16 << 10

	// A daemon left behind by `server &` keeps the pipes open; the command counts as ended if they have been silent for this long after its exit.
	silenceAfterExit = 2 * time.Second
)

type running struct {
	child   *Child
	limit   *time.Timer // kills it when Connect-Timeout-Ms is over; nil without
	tag     *string
	config  config
	wires   *wires
	out     *output
	exit    chan unix.WaitStatus
	writing chan struct{} // one writer to stdin or the terminal at a time
	closed  atomic.Bool   // stdin was closed

	carrying atomic.Int32 // readers that have a chunk for a slow listener
	lastRead atomic.Int64
}

func newRunning(c *config, tag *string, w *wires) *running {
	return &running{config: *c, tag: tag, wires: w, out: newOutput(), exit: make(chan unix.WaitStatus, 1),
		writing: make(chan struct{}, 1)}
}

func (p *running) pid() int { return p.child.PID }

// carry reads until the process and its output have ended. It calls over just before the end event is sent, and drained when no reader is left.
func (p *running) carry(over, drained func()) {
	var readers sync.WaitGroup
	read := func(from *os.File, channel string, size int) {
		readers.Go(func() { p.read(from, channel, size) })
	}
	if p.wires.tty != nil {
		read(p.wires.tty, "pty", ttyChunkBytes)
	} else {
		read(p.wires.stdout, "stdout", pipeChunkBytes)
		read(p.wires.stderr, "stderr", pipeChunkBytes)
	}
	dry := make(chan struct{})
	go func() {
		readers.Wait()
		close(dry)
		p.wires.closeOurs()
		drained()
	}()

	status := <-p.exit
	if p.limit != nil {
		p.limit.Stop()
	}
	p.awaitSilence(dry)
	if p.wires.tty != nil {
		_ = p.wires.tty.Close() // hangs up programs that still use the terminal
	} else {
		p.closeStdin()
	}
	over()
	p.out.close(endOf(status))
}

// read drains a descriptor to its end, with or without listeners, since the program must never block on envd.
func (p *running) read(from *os.File, channel string, size int) {
	chunk := make([]byte, size)
	for {
		n, err := from.Read(chunk)
		if n > 0 {
			p.carrying.Add(1)
			p.out.publish(channel, chunk[:n])
			p.lastRead.Store(time.Now().UnixNano())
			p.carrying.Add(-1)
		}
		if err != nil {
			return // EOF, or EIO from a terminal whose last program has exited
		}
	}
}

func (p *running) awaitSilence(dry <-chan struct{}) {
	quietSince := time.Now()
	for {
		wait := time.NewTimer(time.Until(quietSince.Add(silenceAfterExit)))
		select {
		case <-dry:
			wait.Stop()
			return
		case <-wait.C:
		}
		last := time.Unix(0, p.lastRead.Load())
		switch {
		case p.carrying.Load() > 0:
			quietSince = time.Now()
		case last.After(quietSince):
			quietSince = last
		default:
			return
		}
	}
}

func endOf(status unix.WaitStatus) *endEvent {
	switch {
	case status.Exited():
		end := &endEvent{ExitCode: int32(status.ExitStatus()), Exited: true, Status: fmt.Sprintf("exit status %d", status.ExitStatus())}
		if end.ExitCode != 0 {
			end.Error = end.Status
		}
		return end
	case status.Signaled():
		text := "signal: " + status.Signal().String()
		if status.CoreDump() {
			text += " (core dumped)"
		}
		return &endEvent{ExitCode: -1, Status: text, Error: text}
	}
	text := fmt.Sprintf("wait status %#x", uint32(status))
	return &endEvent{ExitCode: -1, Status: text, Error: text}
}

// write writes to stdin or the terminal; it blocks while the program does not read, as long as the client waits.
func (p *running) write(ctx context.Context, in *input) error {
	to, data := p.wires.stdin, []byte(nil)
	switch {
	case in != nil && in.PTY != nil:
		to, data = p.wires.tty, *in.PTY
		if to == nil {
			return failure.New(failure.FailedPrecondition, "process %d has no terminal: send stdin, or start it with pty", p.pid())
		}
	case in != nil && in.Stdin != nil:
		data = *in.Stdin
		if to == nil {
			return failure.New(failure.FailedPrecondition, "process %d has no stdin: start it with stdin true, or send pty input", p.pid())
		}
	default:
		return failure.New(failure.InvalidArgument, "the input is neither stdin nor pty")
	}
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	cut := make(chan struct{})
	unblock := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = to.SetWriteDeadline(time.Unix(1, 0))
	})
	_, err := to.Write(data)
	if !unblock() {
		<-cut // otherwise the deadline could be set after it is cleared below
		_ = to.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrClosed), errors.Is(err, unix.EPIPE), errors.Is(err, unix.EIO), errors.Is(err, io.ErrClosedPipe):
		return failure.New(failure.FailedPrecondition, "the stdin of process %d is closed", p.pid())
	}
	return failure.About(err, "cannot write to process %d", p.pid())
}

func (p *running) closeStdin() {
	if p.wires.stdin != nil && !p.closed.Swap(true) {
		_ = p.wires.stdin.Close()
	}
}
