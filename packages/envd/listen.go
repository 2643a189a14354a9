package main

// Listening sockets, with a limit on their total number of connections.

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
)

const (
	defaultAddress = "0.0.0.0:49983"
	// Each costs about 10 KiB when idle; further clients wait in the kernel's queue.
	maxConnections = 4096
)

type listenFlags []string

func (l *listenFlags) String() string { return strings.Join(*l, ",") }

func (l *listenFlags) Set(address string) error {
	*l = append(*l, address)
	return nil
}

func (l *listenFlags) open(connected *connections) ([]net.Listener, error) {
	addresses := *l
	if len(addresses) == 0 {
		addresses = listenFlags{defaultAddress}
	}
	slots := make(chan struct{}, maxConnections)
	var opened []net.Listener
	for _, address := range addresses {
		listener, err := open(address)
		if err != nil {
			return nil, fmt.Errorf("cannot listen on %q: %w", address, err)
		}
		opened = append(opened, &boundedListener{listener, slots, connected})
	}
	return opened, nil
}

func open(address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix:")
	if !isUnix {
		return net.Listen("tcp", address)
	}
	// A killed envd may have left its socket; any other file at that path must not be removed.
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
		_ = os.Remove(path)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(path, 0o600)
}

type boundedListener struct {
	net.Listener
	slots     chan struct{}
	connected *connections
}

func (l *boundedListener) Accept() (net.Conn, error) {
	l.slots <- struct{}{}
	connection, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	var bounded net.Conn
	free := sync.OnceFunc(func() {
		l.connected.remove(bounded)
		<-l.slots
	})
	switch c := connection.(type) {
	case *net.TCPConn:
		bounded = &boundedTCP{c, free}
	case *net.UnixConn:
		bounded = &boundedUnix{c, free}
	default:
		free()
		return connection, nil
	}
	l.connected.add(bounded)
	return bounded, nil
}

// Both types embed the concrete connection, so that net/http and the relay can use sendfile, splice and half-close.
type boundedTCP struct {
	*net.TCPConn
	free func()
}

func (c *boundedTCP) Close() error {
	defer c.free()
	return c.TCPConn.Close()
}

type boundedUnix struct {
	*net.UnixConn
	free func()
}

func (c *boundedUnix) Close() error {
	defer c.free()
	return c.UnixConn.Close()
}
