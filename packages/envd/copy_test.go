package main

// A copy learns that it is a copy: by the generation file, which programs can watch, and by the hooks of its template.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// copied starts an envd whose hooks and generation are in a temporary folder.
func copied(t *testing.T) (*envd, *node, string) {
	t.Helper()
	n, key := newNode(t)
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "etc/svc/on-copy.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	return start(t, "-init-key", key, "-root", root), n, root
}

func hook(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, "etc/svc/on-copy.d", name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestTheGenerationChangesInPlaceAndItsWatchersAreTold(t *testing.T) {
	e, n, root := copied(t)
	path := filepath.Join(root, "run/svc/generation")
	if got := n.init(e, 1, `{"sandboxId":"a","generation":"first-generation"}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	opened, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	mapped, err := unix.Mmap(int(opened.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(watch)
	if _, err := unix.InotifyAddWatch(watch, path, unix.IN_MODIFY); err != nil {
		t.Fatal(err)
	}
	if got := n.init(e, 2, `{"sandboxId":"b","generation":"other"}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if text, _ := os.ReadFile(path); string(text) != "other\n" {
		t.Errorf("%q", text)
	}
	if !strings.HasPrefix(string(mapped[:6]), "other\n") {
		t.Errorf("mapped: %q", mapped[:20])
	}
	ready := []unix.PollFd{{Fd: int32(watch), Events: unix.POLLIN}}
	if count, err := unix.Poll(ready, int(patience.Milliseconds())); err != nil || count != 1 {
		t.Errorf("the watcher was told nothing: %v", err)
	}
}

func TestHooksRunInOrderForACopyAndForNothingElse(t *testing.T) {
	e, n, root := copied(t)
	said := filepath.Join(root, "said")
	hook(t, root, "20-second", `echo "$SVC_SANDBOX_ID $SVC_GENERATION $HOME" >> `+said)
	hook(t, root, "10-first", "echo first >> "+said+"; sleep 600 &")
	hook(t, root, ".hidden", "exit 9")
	if err := os.WriteFile(filepath.Join(root, "etc/svc/on-copy.d/30-not-executable"), []byte("exit 9"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.init(e, 1, `{"sandboxId":"source","generation":"g1"}`)
	if _, err := os.Stat(said); err == nil {
		t.Error("hooks ran for a sandbox that is no copy")
	}
	if got := n.init(e, 2, `{"sandboxId":"copy","generation":"g2","onCopyMs":20000}`); got.status != 204 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if text, _ := os.ReadFile(said); string(text) != "first\ncopy g2 /root\n" {
		t.Errorf("%q", text)
	}
}

func TestAHookThatFailsFailsTheCopyWithItsWords(t *testing.T) {
	e, n, root := copied(t)
	nonce := uint64(0)
	refusal := func(ms int) string {
		t.Helper()
		nonce++
		got := n.init(e, nonce, fmt.Sprintf(`{"sandboxId":"copy","onCopyMs":%d}`, ms))
		if got.status != 400 {
			t.Errorf("%d %s", got.status, got.body)
		}
		return string(got.body)
	}
	hook(t, root, "10-keys", "echo no entropy here >&2; exit 3")
	if body := refusal(20_000); !strings.Contains(body, "on copy: ") || !strings.Contains(body, "10-keys ended with exit code 3: no entropy here") {
		t.Error(body)
	}
	hook(t, root, "10-keys", "echo waiting; sleep 600")
	if body := refusal(300); !strings.Contains(body, "10-keys did not end within 300ms: waiting") {
		t.Error(body)
	}
	hook(t, root, "10-keys", "kill -9 $$")
	if body := refusal(20_000); !strings.Contains(body, "was ended by signal killed: it said nothing") {
		t.Error(body)
	}
	if err := os.Chmod(filepath.Join(root, "etc/svc/on-copy.d/10-keys"), 0o777); err != nil {
		t.Fatal(err)
	}
	if body := refusal(20_000); !strings.Contains(body, "must belong to root and be writable by nobody else") {
		t.Error(body)
	}
}
