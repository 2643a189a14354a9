package agent

// GET /relay?port=N: a raw connection to a server inside the sandbox, which may listen on localhost only.

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"svc/envd/internal/failure"
)

const (
	relayProtocol = "svc-relay"
	dialBound     = 5 * time.Second
)

type halfCloser interface{ CloseWrite() error }

func relay(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		failure.Write(w, failure.New(failure.InvalidArgument, "port must be 1 to 65535, got '%.20s'", r.URL.Query().Get("port")))
		return
	}
	if r.Header.Get("Upgrade") != relayProtocol {
		w.Header().Set("Upgrade", relayProtocol)
		failure.Write(w, failure.HTTP(http.StatusUpgradeRequired, failure.InvalidArgument, "a relay needs the header Upgrade: %s", relayProtocol))
		return
	}
	application, err := dialLocal(strconv.FormatUint(port, 10))
	if err != nil {
		failure.Write(w, failure.HTTP(http.StatusBadGateway, failure.Unavailable, "port is not open"))
		return
	}
	defer application.Close()
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		failure.Write(w, failure.New(failure.Internal, "cannot take over the connection: %w", err))
		return
	}
	defer client.Close()
	_ = client.SetDeadline(time.Time{})
	if _, err := io.WriteString(client, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+relayProtocol+"\r\n\r\n"); err != nil {
		return
	}
	splice(client, buffered.Reader, application)
}

func dialLocal(port string) (net.Conn, error) {
	connection, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", port), dialBound)
	if err != nil {
		connection, err = net.DialTimeout("tcp", net.JoinHostPort("::1", port), dialBound)
	}
	return connection, err
}

// splice copies bytes in both directions; the kernel moves them between the sockets if it can.
func splice(client net.Conn, early *bufio.Reader, application net.Conn) {
	upward := make(chan struct{})
	go func() {
		defer close(upward)
		// Bytes that net/http has read beyond the request's head are forwarded first.
		if n := early.Buffered(); n > 0 {
			if head, err := early.Peek(n); err == nil {
				if _, err := application.Write(head); err != nil {
					return
				}
			}
		}
		carry(application, client)
	}()
	carry(client, application)
	<-upward
}

// carry copies one direction and forwards its end; an error ends both directions.
func carry(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(halfCloser); ok && err == nil && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}
