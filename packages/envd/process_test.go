package main

// Processes: streams, input, users, time limits, reattaching.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutputComesApartAndTheEndSaysHow(t *testing.T) {
	e := start(t)
	done := e.run("echo out; echo err >&2; exit 3")
	if done.stdout != "out\n" || done.stderr != "err\n" {
		t.Fatalf("%+v", done)
	}
	if done.end["exitCode"] != 3.0 || done.end["exited"] != true || done.end["error"] != "exit status 3" {
		t.Fatalf("end: %v", done.end)
	}
	if good := e.run("true"); good.end["status"] != "exit status 0" || good.end["error"] != nil || good.end["exitCode"] != nil {
		t.Fatalf("end of a success: %v", good.end)
	}
	if killed := e.run("kill -9 $$"); killed.end["exitCode"] != -1.0 || killed.end["exited"] != nil || killed.end["error"] != "signal: killed" {
		t.Fatalf("end by a signal: %v", killed.end)
	}
}

func TestTwentyMegabytesOfOutputArriveWhole(t *testing.T) {
	done := start(t).run("head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2")
	if len(done.stdout) != 20_000_000 || strings.Trim(done.stdout, "x") != "" || done.stderr != "end\n" {
		t.Fatalf("%d bytes, stderr %q", len(done.stdout), done.stderr)
	}
}

func TestAProcessHasItsUsersEnvironmentAndNothingElse(t *testing.T) {
	t.Setenv("LEAKED", "from envd")
	e := start(t, "-debug-init")
	if got := e.ask("POST", "/init", strings.NewReader(`{"envVars":{"A":"sandbox","B":"sandbox"}}`), nil); got.status != 204 {
		t.Fatalf("init: %d %s", got.status, got.body)
	}
	request := m{"process": m{"cmd": "env", "envs": m{"B": "request"}, "cwd": "/"}, "stdin": false}
	names := map[string]string{}
	for line := range strings.Lines(e.open("process.Process/Start", request, nil).rest().stdout) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names[name] = value
	}
	if names["A"] != "sandbox" || names["B"] != "request" || names["HOME"] == "" || names["USER"] == "" || names["LOGNAME"] == "" || names["PATH"] == "" || len(names) != 6 {
		t.Fatalf("%v", names)
	}
}

func TestAMissingWorkingDirectoryAnUnknownProgramAndAnUnknownUserAreRefused(t *testing.T) {
	e := start(t)
	for _, c := range []struct {
		request m
		header  http.Header
		code    string
	}{
		{m{"process": m{"cmd": "true", "cwd": "/no/such/place"}}, nil, "invalid_argument"},
		{m{"process": m{"cmd": "no-such-program"}}, nil, "invalid_argument"},
		{m{"process": m{}}, nil, "invalid_argument"},
		{m{"process": m{"cmd": "true"}}, as("no-such-user"), "unauthenticated"},
	} {
		if done := e.open("process.Process/Start", c.request, c.header).rest(); done.failure != c.code {
			t.Errorf("%v: %v instead of %s", c.request, done.failure, c.code)
		}
	}
}

func TestRootsCommandsAndFilesBeginInOnePlaceUnlessTheTemplateHasAWorkdir(t *testing.T) {
	needRoot(t)
	e := start(t, "-debug-init")
	where := func(user string) string { return e.open("process.Process/Start", shell("pwd"), as(user)).rest().stdout }
	settle := func(workdir string) {
		t.Helper()
		if got := e.ask("POST", "/init", strings.NewReader(`{"defaultUser":"daemon","defaultWorkdir":"`+workdir+`"}`), nil); got.status != 204 {
			t.Fatalf("init: %d %s", got.status, got.body)
		}
	}
	settle("/usr/sbin") // daemon's home, which is what a template without WORKDIR has
	if root, daemon := where("root"), where("daemon"); root != "/root\n" || daemon != "/usr/sbin\n" {
		t.Errorf("root's command ran in %q, daemon's in %q", root, daemon)
	}
	settle("/opt")
	if root, daemon := where("root"), where("daemon"); root != "/opt\n" || daemon != "/opt\n" {
		t.Errorf("with WORKDIR /opt root's command ran in %q, daemon's in %q", root, daemon)
	}
}

func TestAUsersProgramMayOpenItsOutputByName(t *testing.T) {
	needRoot(t)
	e := start(t)
	script := "echo out > /dev/stdout; echo err > /dev/stderr"
	got := e.open("process.Process/Start", m{"process": m{"cmd": "/bin/sh", "args": []string{"-c", script}}, "stdin": false}, as("nobody")).rest()
	if got.stdout != "out\n" || got.stderr != "err\n" {
		t.Errorf("stdout %q, stderr %q", got.stdout, got.stderr)
	}
}

func TestAProcessOutlivesItsClient(t *testing.T) {
	e, file := start(t), filepath.Join(t.TempDir(), "done")
	s := e.open("process.Process/Start", shell("sleep 0.3; yes | head -c 1000000; echo ended > "+file), nil)
	s.pid()
	s.close()
	eventually(t, "the process ends by itself", func() bool { _, err := os.Stat(file); return err == nil })
}

func TestTheTimeLimitEndsTheProcessAfterItsClientHasGone(t *testing.T) {
	e := start(t)
	limit := http.Header{"Connect-Timeout-Ms": {"400"}}
	s := e.open("process.Process/Start", shell("sleep 600 & sleep 600"), limit)
	pid := s.pid()
	s.close()
	eventually(t, "the process is gone", func() bool { _, err := os.Stat(fmt.Sprintf("/proc/%d", int(pid))); return err != nil })

	kept := e.open("process.Process/Start", shell("sleep 600"), limit).rest()
	if kept.failure != "deadline_exceeded" {
		t.Fatalf("a client that stayed got %v", kept.failure)
	}
}

func TestALateClientStillLearnsTheEnd(t *testing.T) {
	e := start(t)
	request := shell("exit 7")
	request["tag"] = "job"
	first := e.open("process.Process/Start", request, nil).rest()
	for _, selector := range []m{{"pid": first.pid}, {"tag": "job"}} {
		late := e.open("process.Process/Connect", m{"process": selector}, nil).rest()
		if late.pid != first.pid || late.end["exitCode"] != 7.0 {
			t.Fatalf("%v: %+v", selector, late)
		}
	}
	if status, body := e.call("process.Process/SendSignal", m{"process": m{"pid": first.pid}, "signal": 9}, nil); status != 404 || body["code"] != "not_found" {
		t.Fatalf("a signal to an ended process: %d %v", status, body)
	}
	if _, body := e.call("process.Process/List", m{}, nil); body["processes"] != nil {
		t.Fatalf("an ended process is listed: %v", body)
	}
}

func TestInputReachesTheProcessByEveryWay(t *testing.T) {
	e := start(t)
	s := e.open("process.Process/Start", m{"process": m{"cmd": "cat"}, "tag": "c"}, nil)
	pid := s.pid()
	if status, body := e.call("process.Process/SendInput", m{"process": m{"tag": "c"}, "input": m{"stdin": base64.StdEncoding.EncodeToString([]byte("one "))}}, nil); status != 200 {
		t.Fatal(body)
	}
	var body []byte
	for _, message := range []m{{"start": m{"process": m{"pid": pid}}}, {"data": m{"input": m{"stdin": "dHdv"}}}, {"keepalive": m{}}, {"data": m{"input": m{"stdin": "Cg=="}}}} {
		text, _ := json.Marshal(message)
		body = append(body, envelope(text)...)
	}
	got := e.ask("POST", "/process.Process/StreamInput", strings.NewReader(string(body)), http.Header{"Content-Type": {"application/connect+json"}})
	if got.status != 200 || string(got.body) != string(envelope([]byte("{}")))+"\x02\x00\x00\x00\x02{}" {
		t.Fatalf("StreamInput: %d %q", got.status, got.body)
	}
	if status, body := e.call("process.Process/CloseStdin", m{"process": m{"pid": pid}}, nil); status != 200 {
		t.Fatal(body)
	}
	if done := s.rest(); done.stdout != "one two\n" || done.end["exited"] != true {
		t.Fatalf("%+v", done)
	}
}

func TestAProgramThatDoesNotReadDoesNotHoldTheClientForever(t *testing.T) {
	e := start(t)
	s := e.open("process.Process/Start", m{"process": m{"cmd": "sleep", "args": []string{"600"}}}, nil)
	pid := s.pid()
	much := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	status, body := e.call("process.Process/SendInput", m{"process": m{"pid": pid}, "input": m{"stdin": much}}, http.Header{"Connect-Timeout-Ms": {"300"}})
	if status != 504 {
		t.Fatalf("%d %v", status, body)
	}
	if status, _ := e.call("process.Process/SendSignal", m{"process": m{"pid": pid}, "signal": "SIGNAL_SIGKILL"}, nil); status != 200 {
		t.Fatal(status)
	}
	if status, _ := e.call("process.Process/SendSignal", m{"process": m{"pid": pid}, "signal": "SIGNAL_SIGKILL"}, nil); status != 404 {
		t.Fatalf("a killed process could be killed again: %d", status)
	}
	if done := s.rest(); done.end["error"] != "signal: killed" {
		t.Fatalf("%+v", done)
	}
}

func TestADaemonLeftBehindDoesNotHoldTheCommand(t *testing.T) {
	e := start(t)
	done := e.run("sleep 600 & echo $!")
	if done.end["exitCode"] != nil || done.end["exited"] != true {
		t.Fatalf("%+v", done)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(done.stdout)); err != nil {
		t.Fatal("the daemon was ended with its command")
	}
	e.run("kill " + done.stdout)
}

func TestAQuietStreamShowsThatItLives(t *testing.T) {
	s := start(t).open("process.Process/Start", shell("sleep 600"), http.Header{"Keepalive-Ping-Interval": {"1"}})
	s.pid()
	if message, _ := s.next(); dig(message, "event", "keepalive") == nil {
		t.Fatalf("%v", message)
	}
}

func TestATerminalIsATerminal(t *testing.T) {
	e := start(t)
	request := m{"process": m{"cmd": "/bin/sh", "args": []string{"-i"}, "envs": m{"TERM": "xterm", "PS1": "$ "}}, "pty": m{"size": m{"cols": 91, "rows": 31}}}
	s := e.open("process.Process/Start", request, nil)
	pid := s.pid()
	type_ := func(text string) {
		t.Helper()
		input := m{"process": m{"pid": pid}, "input": m{"pty": base64.StdEncoding.EncodeToString([]byte(text))}}
		if status, body := e.call("process.Process/SendInput", input, nil); status != 200 {
			t.Fatal(body)
		}
	}
	read := ""
	until := func(text string) {
		t.Helper()
		for !strings.Contains(read, text) {
			message, _ := s.next()
			chunk, _ := base64.StdEncoding.DecodeString(fmt.Sprint(dig(message, "event", "data", "pty")))
			read += string(chunk)
		}
	}
	type_("stty size\n")
	until("31 91")
	if status, body := e.call("process.Process/Update", m{"process": m{"pid": pid}, "pty": m{"size": m{"cols": 120, "rows": 40}}}, nil); status != 200 {
		t.Fatal(body)
	}
	type_("stty size; test -t 0 && echo is''atty\n")
	until("40 120")
	until("isatty")
	if _, body := e.call("process.Process/CloseStdin", m{"process": m{"pid": pid}}, nil); body["code"] != "failed_precondition" {
		t.Fatal(body)
	}
	type_("\x04")
	if done := s.rest(); done.end == nil {
		t.Fatalf("Ctrl+D did not end the shell: %+v", done)
	}
}

func TestAStoppedEnvdEndsItsProcessesAndSaysSo(t *testing.T) {
	e := start(t)
	s := e.open("process.Process/Start", shell("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"), nil)
	pid := s.pid()
	if message, _ := s.next(); dig(message, "event", "data", "stdout") == nil { // its trap is set
		t.Fatal(message)
	}
	e.stop()
	if code := e.cmd.ProcessState.ExitCode(); code != 0 {
		t.Fatalf("envd ended with %d", code)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", int(pid))); err == nil {
		t.Fatal("the process is still there")
	}
	if done := s.rest(); done.stdout != "bye\n" || done.end["exited"] != true {
		t.Fatalf("%+v", done)
	}
}
