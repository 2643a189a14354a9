package main

// The base of the tests: a real envd, built once, started on its own port, used over sockets.

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// The time limit of every wait in the tests; it is far longer than any wait needs and only ends a test that would hang.
const patience = 20 * time.Second

var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "envd-test")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "envd")
	if out, err := exec.Command("./build.sh", program).CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build.sh: %v\n%s", err, out))
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

type envd struct {
	t    *testing.T
	cmd  *exec.Cmd
	base string
	auth http.Header
}

// start runs an envd that acts for the user who runs the tests and ends with the test.
func start(t *testing.T, flags ...string) *envd {
	t.Helper()
	return startIn(t, &syscall.SysProcAttr{}, flags...)
}

func startIn(t *testing.T, attributes *syscall.SysProcAttr, flags ...string) *envd {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"-listen", "127.0.0.1:0", "-default-user", me.Username}, flags...)...)
	cmd.SysProcAttr = attributes
	cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e := &envd{t: t, cmd: cmd, auth: http.Header{}}
	t.Cleanup(e.stop)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var line struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" {
			e.base = "http://" + line.Address
			go io.Copy(io.Discard, stderr)
			return e
		}
		t.Log(lines.Text())
	}
	t.Fatal("envd did not start")
	return nil
}

func (e *envd) stop() {
	_ = e.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(patience, func() { _ = e.cmd.Process.Kill() })
	_ = e.cmd.Wait()
	timer.Stop()
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// ask makes one plain HTTP request.
func (e *envd) ask(method, path string, body io.Reader, header http.Header) answer {
	e.t.Helper()
	request, err := http.NewRequest(method, e.base+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, set := range []http.Header{e.auth, header} {
		for name, values := range set {
			request.Header[name] = values
		}
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, read}
}

// as returns the header that names a user.
func as(name string) http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"))}}
}

// call makes a unary call and returns the status and the JSON.
func (e *envd) call(method string, request any, header http.Header) (int, map[string]any) {
	e.t.Helper()
	body, _ := json.Marshal(request)
	all := http.Header{"Content-Type": {"application/json"}, "Connect-Protocol-Version": {"1"}}
	for name, values := range header {
		all[name] = values
	}
	got := e.ask("POST", "/"+method, bytes.NewReader(body), all)
	var decoded map[string]any
	if err := json.Unmarshal(got.body, &decoded); err != nil {
		e.t.Fatalf("%s: %d %q: %v", method, got.status, got.body, err)
	}
	return got.status, decoded
}

type m = map[string]any

type stream struct {
	t    *testing.T
	body io.ReadCloser
}

// open starts a server stream.
func (e *envd) open(method string, request any, header http.Header) *stream {
	e.t.Helper()
	message, _ := json.Marshal(request)
	post, _ := http.NewRequest("POST", e.base+"/"+method, bytes.NewReader(envelope(message)))
	post.Header = http.Header{"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"}}
	for _, set := range []http.Header{e.auth, header} {
		for name, values := range set {
			post.Header[name] = values
		}
	}
	response, err := (&http.Transport{}).RoundTrip(post)
	if err != nil {
		e.t.Fatal(err)
	}
	if response.StatusCode != 200 {
		text, _ := io.ReadAll(response.Body)
		e.t.Fatalf("%s: %d %s", method, response.StatusCode, text)
	}
	s := &stream{e.t, response.Body}
	e.t.Cleanup(s.close)
	return s
}

func envelope(message []byte) []byte {
	framed := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(framed[1:], uint32(len(message)))
	return append(framed, message...)
}

func (s *stream) close() { _ = s.body.Close() }

// next returns the next message; last is true for the closing one.
func (s *stream) next() (message m, last bool) {
	s.t.Helper()
	timer := time.AfterFunc(patience, s.close)
	defer timer.Stop()
	var head [5]byte
	if _, err := io.ReadFull(s.body, head[:]); err != nil {
		s.t.Fatalf("the stream broke off: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head[1:]))
	if _, err := io.ReadFull(s.body, body); err != nil {
		s.t.Fatalf("the stream broke off: %v", err)
	}
	if err := json.Unmarshal(body, &message); err != nil {
		s.t.Fatalf("%q: %v", body, err)
	}
	return message, head[0] == 2
}

// dig follows keys into nested maps; it returns nil if one is missing.
func dig(value any, path ...string) any {
	for _, key := range path {
		inner, _ := value.(m)
		value = inner[key]
	}
	return value
}

type finished struct {
	pid                 float64
	stdout, stderr, pty string
	end                 m // nil when the stream failed
	failure             any
}

// rest reads a process's stream to its end.
func (s *stream) rest() (done finished) {
	s.t.Helper()
	read := map[string]*bytes.Buffer{"stdout": {}, "stderr": {}, "pty": {}}
	defer func() {
		done.stdout, done.stderr, done.pty = read["stdout"].String(), read["stderr"].String(), read["pty"].String()
	}()
	for {
		message, last := s.next()
		if last {
			done.failure = dig(message, "error", "code")
			return done
		}
		if pid, ok := dig(message, "event", "start", "pid").(float64); ok {
			done.pid = pid
		}
		for channel, into := range read {
			if text, ok := dig(message, "event", "data", channel).(string); ok {
				decoded, _ := base64.StdEncoding.DecodeString(text)
				into.Write(decoded)
			}
		}
		if end, ok := dig(message, "event", "end").(m); ok {
			done.end = end
		}
	}
}

// pid reads the start event.
func (s *stream) pid() float64 {
	s.t.Helper()
	message, _ := s.next()
	pid, ok := dig(message, "event", "start", "pid").(float64)
	if !ok {
		s.t.Fatalf("the first message is no start event: %v", message)
	}
	return pid
}

func shell(script string) m {
	return m{"process": m{"cmd": "/bin/sh", "args": []string{"-c", script}}, "stdin": false}
}

func (e *envd) run(script string) finished {
	e.t.Helper()
	return e.open("process.Process/Start", shell(script), nil).rest()
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: envd must act for another user")
	}
}
