package main

// Commands, arguments and variables are bytes, and text that is not valid is never changed silently.

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

func TestArgumentsAndVariablesOfAnyBytesArriveAsTheyAre(t *testing.T) {
	e := start(t)
	request := json.RawMessage(`{"process":{"cmd":"sh","args":["-c","printf '%s|%s|%s' \"$1\" \"$V\" \"$2\" | od -An -tx1","sh","caf\udce9 \ud83d\ude00","\\udce9"],"envs":{"V":"\udcff\udc80\u00e9"}},"stdin":false}`)
	want := "63 61 66 e9 20 f0 9f 98 80 7c ff 80 c3 a9 7c 5c 75 64 63 65 39"
	if got := strings.Join(strings.Fields(e.open("process.Process/Start", request, nil).rest().stdout), " "); got != want {
		t.Fatalf("%s, expected %s", got, want)
	}
}

func TestTextThatIsNotUnicodeIsRefusedAndNotReplaced(t *testing.T) {
	e := start(t)
	for _, body := range []string{"{\"path\":\"/tmp/caf\xe9\"}", `{"path":"/tmp/caf\udce9"}`, `{"path":"\ud800"}`} {
		got := e.ask("POST", "/filesystem.Filesystem/Stat", strings.NewReader(body), http.Header{"Content-Type": {"application/json"}})
		if got.status != 400 || !bytes.Contains(got.body, []byte("invalid_argument")) {
			t.Errorf("%q: %d %s", body, got.status, got.body)
		}
	}
	for _, request := range []string{
		`{"process":{"cmd":"true","args":["\ud800"]}}`, `{"process":{"cmd":"true"},"tag":"\udce9"}`, `{"process":{"cmd":"true","args":["\udce9","` + "\ufdd0" + `"]}}`,
	} {
		if done := e.open("process.Process/Start", json.RawMessage(request), nil).rest(); done.failure != "invalid_argument" {
			t.Errorf("%s: %+v", request, done)
		}
	}
}

func TestAnArgumentThatIsTooLongIsSaidToBeOne(t *testing.T) {
	e := start(t)
	long := strings.Repeat("x", 128<<10-1)
	if done := e.open("process.Process/Start", m{"process": m{"cmd": "sh", "args": []string{"-c", "echo ${#1}", "sh", long}}}, nil).rest(); done.stdout != "131071\n" {
		t.Errorf("%+v", done)
	}
	for _, process := range []m{{"cmd": "true", "args": []string{long + "x"}}, {"cmd": "true", "envs": m{"V": long}}} {
		message, last := e.open("process.Process/Start", m{"process": process}, nil).next()
		words, _ := dig(message, "error", "message").(string)
		if !last || !strings.Contains(words, "argument list too long") || !strings.Contains(words, "the maximum is 131071") {
			t.Errorf("%v", message)
		}
	}
}
