package main

// In a copy of a machine, and after a resume, connections are closed and processes keep running.

import (
	"net"
	"strings"
	"testing"
	"time"
)

// dial opens a connection on which no request has been sent.
func (e *envd) dial() net.Conn {
	e.t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(e.base, "http://"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// ended waits until the peer has closed the connection.
func ended(t *testing.T, connection net.Conn) bool {
	t.Helper()
	_ = connection.SetReadDeadline(time.Now().Add(patience))
	var one [1]byte
	_, err := connection.Read(one[:])
	timeout, isNet := err.(net.Error)
	return err != nil && !(isNet && timeout.Timeout())
}

func TestANewSandboxIDEndsEveryConnectionAndNoProcess(t *testing.T) {
	n, key := newNode(t)
	e := start(t, "-init-key", key, "-root", t.TempDir())
	if got := n.init(e, 1, `{"sandboxId":"parent","generation":"1"}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for index, body := range []string{`{"sandboxId":"child","generation":"1"}`, `{"generation":"2"}`} {
		stream := e.open("process.Process/Start", shell("echo before; sleep 0.3; echo after; sleep 600"), nil)
		pid := stream.pid()
		idle := e.dial()
		if got := n.init(e, uint64(index)+10, body); got.status != 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
		if !ended(t, idle) {
			t.Error("a connection outlives " + body)
		}
		if !streamEnds(stream) {
			t.Error("a stream outlives " + body)
		}
		again := e.open("process.Process/Connect", m{"process": m{"pid": pid}}, nil)
		if again.pid() != pid {
			t.Error("the process is another")
		}
		if status, _ := e.call("process.Process/SendSignal", m{"process": m{"pid": pid}, "signal": "SIGNAL_SIGKILL"}, nil); status != 200 {
			t.Error("the process is gone", status)
		}
	}
}

// streamEnds reads until the connection ends, which must happen without an end message.
func streamEnds(s *stream) bool {
	over := make(chan bool, 1)
	go func() {
		buffer := make([]byte, 4096)
		for {
			if _, err := s.body.Read(buffer); err != nil {
				over <- true
				return
			}
		}
	}()
	select {
	case <-over:
		return true
	case <-time.After(patience):
		return false
	}
}

func TestTheFirstIdentityAndTheSameOneEndNoConnection(t *testing.T) {
	n, key := newNode(t)
	e := start(t, "-init-key", key)
	stream := e.open("process.Process/Start", m{"process": m{"cmd": "/bin/cat"}, "stdin": true}, nil)
	pid := stream.pid()
	for nonce, body := range []string{`{"sandboxId":"one","generation":"1"}`, `{"sandboxId":"one","generation":"1"}`, `{"envVars":{}}`} {
		if got := n.init(e, uint64(nonce+1), body); got.status != 204 {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	if status, answer := e.call("process.Process/CloseStdin", m{"process": m{"pid": pid}}, nil); status != 200 {
		t.Fatal(answer)
	}
	if done := stream.rest(); done.end == nil {
		t.Error("the stream was cut")
	}
}

func TestABadMachineIdOrNameserverChangesNothing(t *testing.T) {
	n, key := newNode(t)
	e := start(t, "-init-key", key)
	for nonce, body := range []string{`{"machineId":"x","envVars":{"A":"1"}}`, `{"nameserver":"not an address","envVars":{"A":"1"}}`} {
		if got := n.init(e, uint64(nonce+1), body); got.status != 400 || string(e.ask("GET", "/envs", nil, nil).body) != `{}` {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
}
