package main

// Trees as archives: GNU tar is the peer, and random trees are sent in both directions.

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func treeAt(path string, more string) string {
	return "/files/tree?path=" + url.QueryEscape(path) + more
}

func TestRandomTreesGoThereAndBackAndAreEqual(t *testing.T) {
	e := start(t)
	probe := filepath.Join(t.TempDir(), "probe")
	_ = os.WriteFile(probe, nil, 0o600)
	takesAttributes := unix.Setxattr(probe, "user.probe", []byte("x"), 0) == nil
	for round := range 25 {
		seed := rand.Uint64()
		source, there := t.TempDir(), filepath.Join(t.TempDir(), "new/there")
		plant(t, rand.New(rand.NewPCG(seed, 0)), source, takesAttributes)
		sent := described(t, source, true)
		if got := e.ask("POST", treeAt(there, ""), bytes.NewReader(tarOf(t, source)), nil); got.status != 200 || !strings.Contains(string(got.body), `"conflicts":[]`) {
			t.Fatalf("seed %d: %d %s", seed, got.status, got.body)
		}
		same(t, fmt.Sprintf("round %d, seed %d, there", round, seed), sent, described(t, there, true))
		got := e.ask("GET", treeAt(there, ""), nil, nil)
		same(t, fmt.Sprintf("round %d, seed %d, back", round, seed), sent, described(t, untar(t, got.body), true))
	}
}

func TestWhatStandsInTheWayIsNamedAndNothingChanges(t *testing.T) {
	e, source, target := start(t), t.TempDir(), t.TempDir()
	write := func(path, content string) {
		t.Helper()
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(source, "a"), "new")
	write(filepath.Join(source, "sub/b"), "new")
	_ = os.Symlink("a", filepath.Join(source, "link"))
	write(filepath.Join(target, "a"), "old")
	write(filepath.Join(target, "sub/c"), "stays")
	_ = os.Symlink("elsewhere", filepath.Join(target, "link"))
	archive := tarOf(t, source)
	checked := e.ask("POST", treeAt(target, "&check=true"), strings.NewReader("d.\x00fa\x00dsub\x00fsub/b\x00llink\x00"), nil)
	refused := e.ask("POST", treeAt(target, ""), bytes.NewReader(archive), nil)
	for _, got := range []answer{checked, refused} {
		for _, part := range []string{`"standing":"directory"`, `/a","standing":"file"`, `/link","standing":"link"`} {
			if !strings.Contains(string(got.body), part) {
				t.Errorf("%s lacks %s", got.body, part)
			}
		}
	}
	if entries, _ := os.ReadDir(target); len(entries) != 3 {
		t.Errorf("%v", entries)
	}
	if text, _ := os.ReadFile(filepath.Join(target, "a")); string(text) != "old" {
		t.Errorf("%q", text)
	}
	if got := e.ask("POST", treeAt(target, "&force=true"), bytes.NewReader(archive), nil); got.status != 200 {
		t.Fatalf("%s", got.body)
	}
	if text, _ := os.ReadFile(filepath.Join(target, "a")); string(text) != "new" {
		t.Errorf("%q", text)
	}
	if to, _ := os.Readlink(filepath.Join(target, "link")); to != "a" {
		t.Errorf("%q", to)
	}
	if text, _ := os.ReadFile(filepath.Join(target, "sub/c")); string(text) != "stays" {
		t.Errorf("%q", text)
	}
}

func TestAnUploadThatBreaksOffLeavesNothing(t *testing.T) {
	e, source, target := start(t), t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "big"), bytes.Repeat([]byte("x"), 3<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	archive := tarOf(t, source)
	for _, more := range []string{"&content=true", ""} {
		// The archive is complete but the request is not: this is how a sender reports that a file changed.
		reader, writer := io.Pipe()
		go func() {
			_, _ = writer.Write(archive)
			eventually(t, "the folder in which it arrives", func() bool { entries, _ := os.ReadDir(target); return len(entries) == 1 })
			_ = writer.CloseWithError(io.ErrUnexpectedEOF)
		}()
		post, _ := http.NewRequest("POST", e.base+treeAt(filepath.Join(target, "new"), more), reader)
		if got, err := (&http.Transport{}).RoundTrip(post); err == nil {
			_ = got.Body.Close()
			t.Errorf("it was accepted: %d", got.StatusCode)
		}
		eventually(t, "the folder is gone", func() bool { entries, _ := os.ReadDir(target); return len(entries) == 0 })
	}
}

func TestAnArchiveCannotLeadOutOfItsTarget(t *testing.T) {
	e, outside := start(t), t.TempDir()
	for _, words := range [][]string{
		{"--transform=s,^./inner,../out,"},
		{"--transform=s,^./inner,link/out,"},
	} {
		source := t.TempDir()
		_ = os.Symlink(outside, filepath.Join(source, "link"))
		_ = os.WriteFile(filepath.Join(source, "z"), nil, 0o644)
		_ = os.WriteFile(filepath.Join(source, "inner"), []byte("evil"), 0o644)
		args := append([]string{"-c", "--format=pax", "-P", "-C", source}, words...)
		archive, err := exec.Command("tar", append(args, "--no-recursion", ".", "./link", "./inner")...).Output()
		if err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(t.TempDir(), "target")
		if got := e.ask("POST", treeAt(target, ""), bytes.NewReader(archive), nil); got.status != 400 {
			t.Errorf("%v: %d %s", words, got.status, got.body)
		}
		if entries, _ := os.ReadDir(filepath.Dir(target)); len(entries) != 0 {
			t.Errorf("%v", entries)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) != 0 {
		t.Errorf("%v", entries)
	}
}
