package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// tunnel opens a relay by hand, as the node's proxy does.
func (e *envd) tunnel(port int, header http.Header, early string) (*net.TCPConn, *bufio.Reader, *http.Response) {
	e.t.Helper()
	connection, err := net.Dial("tcp", strings.TrimPrefix(e.base, "http://"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetDeadline(time.Now().Add(patience))
	request := fmt.Sprintf("GET /relay?port=%d HTTP/1.1\r\nHost: envd\r\nConnection: Upgrade\r\nUpgrade: svc-relay\r\n", port)
	for name, values := range header {
		request += name + ": " + values[0] + "\r\n"
	}
	if _, err := io.WriteString(connection, request+"\r\n"+early); err != nil {
		e.t.Fatal(err)
	}
	reader := bufio.NewReader(connection)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return connection.(*net.TCPConn), reader, response
}

// echo returns everything in upper case once the client has ended its half.
func echo(t *testing.T, network, address string) int {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("needs %s: %v", address, err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				text, _ := io.ReadAll(connection)
				_, _ = io.WriteString(connection, strings.ToUpper(string(text)))
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

func TestARelayCarriesBytesBothWaysAndPassesOnTheEnd(t *testing.T) {
	e := start(t)
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0"} {
		port := echo(t, network, address)
		connection, reader, response := e.tunnel(port, nil, "early ")
		if response.StatusCode != 101 || response.Header.Get("Upgrade") != "svc-relay" {
			t.Fatalf("%s: %s", network, response.Status)
		}
		long := strings.Repeat("abc", 1_000_000)
		if _, err := io.WriteString(connection, long); err != nil {
			t.Fatal(err)
		}
		_ = connection.CloseWrite()
		read, err := io.ReadAll(reader)
		if err != nil || string(read) != "EARLY "+strings.ToUpper(long) {
			t.Fatalf("%s: %d bytes, %v", network, len(read), err)
		}
	}
}

func TestAPortNobodyListensOnIsNamedClosed(t *testing.T) {
	listener, _ := net.Listen("tcp4", "127.0.0.1:0")
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	_, _, response := start(t).tunnel(port, nil, "")
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != 502 || !strings.Contains(string(body), `"message":"port is not open"`) {
		t.Fatalf("%s %s", response.Status, body)
	}
}

func TestTheNodeRelaysWithoutTheTokenAndNobodyElse(t *testing.T) {
	e, n, token := secured(t)
	port := echo(t, "tcp4", "127.0.0.1:0")
	now := uint64(time.Now().UnixMilli())
	for _, c := range []struct {
		what   string
		header http.Header
		status int
	}{
		{"nothing", nil, 401},
		{"the token", http.Header{"X-Access-Token": {token}}, 101},
		{"a signature", n.sign("svc-relay", now, fmt.Sprint(port)), 101},
		{"the same signature again", n.sign("svc-relay", now, fmt.Sprint(port)), 101},
		{"a signature for another port", n.sign("svc-relay", now, fmt.Sprint(port+1)), 401},
		{"an old signature", n.sign("svc-relay", now-6*60_000, fmt.Sprint(port)), 401},
		{"a signature from the future", n.sign("svc-relay", now+6*60_000, fmt.Sprint(port)), 401},
	} {
		if _, _, response := e.tunnel(port, c.header, ""); response.StatusCode != c.status {
			t.Errorf("%s: %s", c.what, response.Status)
		}
	}
}
