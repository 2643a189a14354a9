package main

// Directories: listing, making, moving and removing, and links in paths.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestTheTreeCanBeLookedAtAndChanged(t *testing.T) {
	e, dir := start(t), t.TempDir()
	rpc := func(method string, request m) (int, map[string]any) {
		return e.call("filesystem.Filesystem/"+method, request, nil)
	}
	at := func(name string) m { return m{"path": filepath.Join(dir, name)} }
	expect := func(wanted any, method string, request m) map[string]any {
		t.Helper()
		status, body := rpc(method, request)
		if (wanted == nil && status != 200) || (wanted != nil && body["code"] != wanted) {
			t.Fatalf("%s %v: %d %v", method, request, status, body)
		}
		return body
	}
	expect(nil, "MakeDir", at("d/e"))
	expect("already_exists", "MakeDir", at("d/e"))
	e.put(filepath.Join(dir, "d/f"), "four", nil)
	expect("invalid_argument", "MakeDir", at("d/f"))
	expect("not_found", "Stat", at("none"))
	expect("invalid_argument", "ListDir", at("d/f"))
	expect("not_found", "ListDir", at("none"))

	entry := expect(nil, "Stat", at("d/f"))["entry"]
	if dig(entry, "size") != "4" || dig(entry, "type") != "FILE_TYPE_FILE" || dig(entry, "permissions") != "-rw-r--r--" || dig(entry, "mode") != float64(0o644) {
		t.Fatal(entry)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000000000Z", dig(entry, "modifiedTime").(string)); err != nil {
		t.Fatal(err)
	}
	_ = os.Symlink("f", filepath.Join(dir, "d/link"))
	_ = os.Symlink("nowhere", filepath.Join(dir, "d/dangling"))
	_ = os.Symlink("d", filepath.Join(dir, "dirlink"))
	if link := expect(nil, "Stat", at("d/link"))["entry"]; dig(link, "type") != "FILE_TYPE_FILE" || dig(link, "size") != "4" || dig(link, "symlinkTarget") != filepath.Join(dir, "d/f") {
		t.Fatal(link)
	}
	if link := expect(nil, "Stat", at("d/dangling"))["entry"]; dig(link, "type") != "FILE_TYPE_SYMLINK" {
		t.Fatal(link)
	}
	e.put(filepath.Join(dir, "d/e/deep"), "", nil)
	paths := func(request m) (all []string) {
		entries, _ := expect(nil, "ListDir", request)["entries"].([]any)
		for _, entry := range entries {
			all = append(all, strings.TrimPrefix(dig(entry, "path").(string), dir+"/"))
		}
		return all
	}
	if got := fmt.Sprint(paths(at("d"))); got != "[d/dangling d/e d/f d/link]" {
		t.Fatal(got)
	}
	if got := fmt.Sprint(paths(m{"path": dir + "/dirlink", "depth": "2"})); got != "[dirlink/dangling dirlink/e dirlink/e/deep dirlink/f dirlink/link]" {
		t.Fatal(got)
	}
	moved := expect(nil, "Move", m{"source": dir + "/d/f", "destination": dir + "/new/g"})
	if dig(moved, "entry", "path") != dir+"/new/g" {
		t.Fatal(moved)
	}
	expect("not_found", "Move", m{"source": dir + "/d/f", "destination": dir + "/x"})
	expect(nil, "Remove", at("d"))
	expect(nil, "Remove", at("d"))
	expect("invalid_argument", "Remove", m{"path": "/"})
	expect("not_found", "Stat", at("d/e/deep"))
}

func TestAMoveCrossesFileSystems(t *testing.T) {
	e := start(t)
	far, err := os.MkdirTemp("/dev/shm", "envd-test")
	if err != nil {
		t.Skip("needs /dev/shm as a second file system")
	}
	t.Cleanup(func() { _ = os.RemoveAll(far) })
	near := t.TempDir()
	e.put(near+"/tree/sub/f", "content", nil)
	_ = os.Symlink("sub/f", near+"/tree/link")
	if status, body := e.call("filesystem.Filesystem/Move", m{"source": near + "/tree", "destination": far + "/tree"}, nil); status != 200 {
		t.Fatal(body)
	}
	if read, _ := os.ReadFile(far + "/tree/link"); string(read) != "content" {
		t.Fatalf("%q", read)
	}
	if _, err := os.Lstat(near + "/tree"); err == nil {
		t.Fatal("the source is still there")
	}
}
