package main

// The owner of a directory may replace anything in it at any moment; envd must never exceed the user's rights because of that.

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const racing = 3 * time.Second

// arena creates a directory of nobody's next to one that only root may enter.
func arena(t *testing.T) (open, closed string) {
	t.Helper()
	needRoot(t)
	root, err := os.MkdirTemp("", "envd-rights")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	open, closed = filepath.Join(root, "open"), filepath.Join(root, "closed")
	for _, err := range []error{
		os.Chmod(root, 0o755), os.MkdirAll(open+"/own", 0o755), os.Mkdir(closed, 0o700),
		os.WriteFile(closed+"/f", []byte("SECRET"), 0o600), os.WriteFile(open+"/own/f", []byte("public"), 0o644),
		os.Lchown(open, 65534, 65534), os.Lchown(open+"/own", 65534, 65534), os.Lchown(open+"/own/f", 65534, 65534),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return open, closed
}

func asNobody(path string) string { return "/files?username=nobody&path=" + url.QueryEscape(path) }

func startStrict(t *testing.T) *envd {
	t.Helper()
	e := start(t, "-debug-init")
	if got := e.ask("POST", "/init", strings.NewReader(`{"strictFiles":true}`), nil); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	return e
}

func TestInAStrictSandboxAUserGetsAtFilesWithItsOwnRightsOnly(t *testing.T) {
	open, closed := arena(t)
	e := startStrict(t)
	if got := e.ask("GET", asNobody(closed+"/f"), nil, nil); got.status != 403 || strings.Contains(string(got.body), "SECRET") {
		t.Errorf("read: %d %s", got.status, got.body)
	}
	if got := e.ask("POST", asNobody(closed+"/new"), strings.NewReader("x"), octets); got.status != 403 {
		t.Errorf("write: %d %s", got.status, got.body)
	}
	for _, method := range []string{"Stat", "ListDir", "MakeDir", "Remove"} {
		path := closed + "/f"
		if method == "MakeDir" {
			path = closed + "/d"
		}
		if status, body := e.call("filesystem.Filesystem/"+method, m{"path": path}, as("nobody")); status != 403 {
			t.Errorf("%s: %d %v", method, status, body)
		}
	}
	if message, last := e.open("filesystem.Filesystem/WatchDir", m{"path": closed}, as("nobody")).next(); !last || dig(message, "error", "code") != "permission_denied" {
		t.Errorf("watch: %v", message)
	}
	if got := e.ask("POST", asNobody(open+"/made/f"), strings.NewReader("x"), octets); got.status != 200 {
		t.Fatalf("own directory: %d %s", got.status, got.body)
	}
	_, body := e.call("filesystem.Filesystem/Stat", m{"path": open + "/made"}, nil)
	if dig(body, "entry", "owner") != "nobody" || dig(body, "entry", "mode") != float64(0o755) {
		t.Error(body)
	}
	done := e.open("process.Process/Start", shell("id -u; id -G; cat "+closed+"/f"), as("nobody")).rest()
	if done.stdout != "65534\n65534\n" || done.end["exitCode"] != 1.0 {
		t.Errorf("%+v", done)
	}
	if done := e.run("id -u"); done.stdout != "0\n" {
		t.Errorf("envd lost its own rights: %+v", done)
	}
}

func TestASwappedLinkNeverLeadsPastTheUsersRights(t *testing.T) {
	t.Run("in a strict sandbox", func(t *testing.T) { race(t, startStrict(t)) })
	t.Run("where envd lends its rights", func(t *testing.T) { race(t, start(t)) })
}

func race(t *testing.T, e *envd) {
	open, closed := arena(t)
	var over atomic.Bool
	var everyone sync.WaitGroup
	// The name alternates between the user's own directory and a link to root's.
	swapped := open + "/swapped"
	everyone.Go(func() {
		for i := 0; !over.Load(); i++ {
			next := []string{open + "/own", closed}[i%2]
			_ = os.Symlink(next, open+"/next")
			_ = os.Lchown(open+"/next", 65534, 65534)
			_ = os.Rename(open+"/next", swapped)
		}
	})
	var reads, refusals, leaks atomic.Int64
	attack := func(act func() answer) {
		everyone.Go(func() {
			for !over.Load() {
				switch got := act(); {
				case strings.Contains(string(got.body), "SECRET"), strings.Contains(string(got.body), `"name":"hidden"`):
					leaks.Add(1)
				case got.status == 403:
					refusals.Add(1)
				case got.status < 300:
					reads.Add(1)
				}
			}
		})
	}
	if err := os.WriteFile(closed+"/hidden", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	rpc := func(method, path string) func() answer {
		header := as("nobody")
		header.Set("Content-Type", "application/json")
		return func() answer {
			return e.ask("POST", "/filesystem.Filesystem/"+method, strings.NewReader(fmt.Sprintf(`{"path":%q}`, path)), header)
		}
	}
	attack(func() answer {
		// ask is not used, since a file that is overwritten meanwhile may end before its announced length.
		response, err := http.Get(e.base + asNobody(swapped+"/f"))
		if err != nil {
			return answer{}
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return answer{status: response.StatusCode, body: body}
	})
	attack(func() answer { return e.ask("POST", asNobody(swapped+"/f"), strings.NewReader("overwritten"), octets) })
	attack(func() answer { return e.ask("POST", asNobody(swapped+"/new/file"), strings.NewReader("x"), octets) })
	attack(rpc("Remove", swapped+"/hidden"))
	attack(rpc("MakeDir", swapped+"/made"))
	attack(rpc("ListDir", swapped))
	attack(rpc("Stat", swapped+"/hidden"))
	attack(func() answer {
		header := as("nobody")
		header.Set("Content-Type", "application/json")
		return e.ask("POST", "/filesystem.Filesystem/Move", strings.NewReader(fmt.Sprintf(
			`{"source":%q,"destination":%q}`, swapped+"/f", open+"/taken")), header)
	})
	attack(func() answer {
		return e.ask("POST", "/files/compose", strings.NewReader(fmt.Sprintf(
			`{"username":"nobody","source_paths":[%q],"destination":%q}`, swapped+"/f", open+"/stolen")), http.Header{})
	})
	time.Sleep(racing)
	over.Store(true)
	everyone.Wait()
	t.Logf("%d granted, %d refused", reads.Load(), refusals.Load())
	if leaks.Load() > 0 {
		t.Errorf("%d answers held root's secret", leaks.Load())
	}
	if reads.Load() == 0 || refusals.Load() == 0 {
		t.Error("the race never went both ways, so it shows nothing")
	}
	if secret, _ := os.ReadFile(closed + "/f"); string(secret) != "SECRET" {
		t.Errorf("root's file now holds %q", secret)
	}
	left, _ := os.ReadDir(closed)
	names := []string{}
	for _, entry := range left {
		names = append(names, entry.Name())
	}
	if fmt.Sprint(names) != "[f hidden]" {
		t.Errorf("root's directory now holds %v", names)
	}
}
