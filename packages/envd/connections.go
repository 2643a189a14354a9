package main

// The open connections of clients, so that a copy of this machine can close those it inherited.

import (
	"context"
	"net"
	"sync"
)

type connections struct {
	mu   sync.Mutex
	open map[net.Conn]struct{}
}

func newConnections() *connections { return &connections{open: map[net.Conn]struct{}{}} }

func (c *connections) add(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[connection] = struct{}{}
}

func (c *connections) remove(connection net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, connection)
}

type connectionKey struct{}

// carry stores in a request's context the connection it arrived on.
func (c *connections) carry(ctx context.Context, connection net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, connection)
}

// endOthers closes every connection except the one that a request arrived on, including those that relays have taken over.
func (c *connections) endOthers(ctx context.Context) {
	mine, _ := ctx.Value(connectionKey{}).(net.Conn)
	c.mu.Lock()
	var others []net.Conn
	for connection := range c.open {
		if connection != mine {
			others = append(others, connection)
		}
	}
	c.mu.Unlock()
	for _, connection := range others {
		_ = connection.Close()
	}
}
