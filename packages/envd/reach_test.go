package main

// Files are reached as by E2B's agent: envd lends its rights, new files belong to the user, and links are not followed with lent rights.

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}

func (e *envd) asNobody(method string, request m) (int, m) {
	e.t.Helper()
	return e.call("filesystem.Filesystem/"+method, request, as("nobody"))
}

func TestAUserReadsAndWritesWhereOnlyRootMayAndOwnsWhatItMade(t *testing.T) {
	_, closed := arena(t)
	e := start(t)
	if got := e.ask("GET", asNobody(closed+"/f"), nil, nil); got.status != 200 || string(got.body) != "SECRET" {
		t.Errorf("read: %d %s", got.status, got.body)
	}
	if got := e.ask("POST", asNobody(closed+"/app/sub/main.py"), strings.NewReader("x"), octets); got.status != 200 {
		t.Fatalf("write: %d %s", got.status, got.body)
	}
	for _, path := range []string{"/app", "/app/sub", "/app/sub/main.py"} {
		if owner := ownerOf(t, closed+path); owner != 65534 {
			t.Errorf("%s belongs to %d", path, owner)
		}
	}
	if ownerOf(t, closed) != 0 {
		t.Error("the directory that was there changed hands")
	}
	if got := e.ask("POST", asNobody(closed+"/f"), strings.NewReader("over"), octets); got.status != 200 || ownerOf(t, closed+"/f") != 65534 {
		t.Errorf("overwrite: %d %s, owner %d", got.status, got.body, ownerOf(t, closed+"/f"))
	}
	if got := e.ask("POST", asNobody(closed+"/f/below"), strings.NewReader("x"), octets); got.status != 400 || !strings.Contains(string(got.body), "not a directory") {
		t.Errorf("below a file: %d %s", got.status, got.body)
	}
	if status, body := e.asNobody("MakeDir", m{"path": closed + "/srv/x"}); status != 200 || dig(body, "entry", "owner") != "nobody" {
		t.Errorf("%d %v", status, body)
	}
	if status, body := e.asNobody("MakeDir", m{"path": closed + "/srv/x"}); status != 409 {
		t.Errorf("%d %v", status, body)
	}
	if status, body := e.asNobody("Stat", m{"path": closed + "/none"}); status != 404 {
		t.Errorf("%d %v", status, body)
	}
	if status, body := e.asNobody("ListDir", m{"path": filepath.Dir(closed), "depth": 4}); status != 200 || !strings.Contains(fmt.Sprint(body), closed+"/app/sub/main.py") {
		t.Errorf("%d %v", status, body)
	}
	if status, body := e.asNobody("Move", m{"source": closed + "/app", "destination": closed + "/deep/er/moved"}); status != 200 || ownerOf(t, closed+"/deep/er") != 65534 {
		t.Errorf("%d %v", status, body)
	}
	if status, body := e.asNobody("Remove", m{"path": closed + "/deep"}); status != 200 {
		t.Errorf("%d %v", status, body)
	}
	if status, body := e.asNobody("Remove", m{"path": closed + "/deep"}); status != 200 {
		t.Errorf("what is not there is removed: %d %v", status, body)
	}
	left, _ := filepath.Glob(closed + "/*")
	if want := []string{closed + "/f", closed + "/srv"}; !slices.Equal(left, want) {
		t.Errorf("%v, not %v", left, want)
	}
}

func TestFilesOfRootAreComposedMovedAcrossFileSystemsAndWatched(t *testing.T) {
	open, closed := arena(t)
	e := start(t)
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(closed+"/"+name, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	watch := e.open("filesystem.Filesystem/WatchDir", m{"path": filepath.Dir(closed), "recursive": true, "include_entry": true}, as("nobody"))
	if first, _ := watch.next(); first["start"] == nil {
		t.Fatal(first)
	}
	request, _ := json.Marshal(m{"username": "nobody", "source_paths": []string{closed + "/a", closed + "/b"}, "destination": closed + "/all"})
	if got := e.ask("POST", "/files/compose", strings.NewReader(string(request)), nil); got.status != 200 || ownerOf(t, closed+"/all") != 65534 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	if seen := watch.events(t, "remove closed/b"); !slices.Contains(seen, "create closed/all") {
		t.Error(seen)
	}
	elsewhere, err := os.MkdirTemp("/dev/shm", "envd-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	if err := os.Chmod(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(closed+"/all", 7, 7); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("all", closed+"/link"); err != nil {
		t.Fatal(err)
	}
	if status, body := e.asNobody("Move", m{"source": closed, "destination": elsewhere + "/closed"}); status != 200 {
		t.Fatalf("%d %v", status, body)
	}
	if text, _ := os.ReadFile(elsewhere + "/closed/link"); string(text) != "ab" || ownerOf(t, elsewhere+"/closed/all") != 7 || ownerOf(t, elsewhere+"/closed") != 0 {
		t.Errorf("%q, owner %d", text, ownerOf(t, elsewhere+"/closed/all"))
	}
	if _, err := os.Lstat(closed); err == nil {
		t.Error("the source is still there")
	}
	_ = open
}

func TestALinkOfAUserBorrowsNoRightsAndOneOfRootsDoes(t *testing.T) {
	open, closed := arena(t)
	e := start(t)
	for _, err := range []error{
		os.Symlink(closed, open+"/theirs"), os.Lchown(open+"/theirs", 65534, 65534), os.Symlink(closed+"/f", open+"/theirfile"), os.Lchown(open+"/theirfile", 65534, 65534),
		os.Symlink("../closed", open+"/roots"), os.Symlink("f", closed+"/short"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{open + "/theirs/f", open + "/theirfile"} {
		if got := e.ask("GET", asNobody(path), nil, nil); got.status != 403 || !strings.Contains(string(got.body), "link that is not root's") {
			t.Errorf("read %s: %d %s", path, got.status, got.body)
		}
		if got := e.ask("POST", asNobody(path), strings.NewReader("x"), octets); got.status != 403 {
			t.Errorf("write %s: %d %s", path, got.status, got.body)
		}
	}
	for method, path := range map[string]string{"ListDir": open + "/theirs", "MakeDir": open + "/theirs/d", "Remove": open + "/theirs/f", "Stat": open + "/theirs/f"} {
		if status, body := e.asNobody(method, m{"path": path}); status != 403 {
			t.Errorf("%s: %d %v", method, status, body)
		}
	}
	// The link itself is the user's, so its target is not shown.
	if _, body := e.asNobody("Stat", m{"path": open + "/theirfile"}); dig(body, "entry", "type") != "FILE_TYPE_SYMLINK" {
		t.Error(body)
	}
	for _, path := range []string{open + "/roots/f", open + "/roots/short"} {
		if got := e.ask("GET", asNobody(path), nil, nil); got.status != 200 || string(got.body) != "SECRET" {
			t.Errorf("read %s: %d %s", path, got.status, got.body)
		}
	}
	if _, body := e.asNobody("Stat", m{"path": closed + "/short"}); dig(body, "entry", "type") != "FILE_TYPE_FILE" || dig(body, "entry", "symlinkTarget") != closed+"/f" {
		t.Error(body)
	}
	if secret, _ := os.ReadFile(closed + "/f"); string(secret) != "SECRET" || ownerOf(t, closed+"/f") != 0 {
		t.Errorf("root's file now holds %q", secret)
	}
}

func TestANewFileIsCreatedGivenAndWrittenBeforeTheEyesOfAWatcher(t *testing.T) {
	e, dir := start(t), t.TempDir()
	s := e.open("filesystem.Filesystem/WatchDir", m{"path": dir}, nil)
	s.next()
	e.put(dir+"/f", "content", nil)
	e.call("filesystem.Filesystem/MakeDir", m{"path": dir + "/last"}, nil)
	seen := s.events(t, "chmod last")
	if want := []string{"create f", "chmod f", "write f", "create last", "chmod last"}; !slices.Equal(seen, want) {
		t.Errorf("%v, not %v", seen, want)
	}
}

func TestARemoveThatCannotEndWellRemovesNothing(t *testing.T) {
	open, closed := arena(t)
	kept := []string{open + "/own/f", closed + "/f"}
	for what, e := range map[string]*envd{"strict": startStrict(t), "lending": start(t)} {
		for _, path := range []string{open + "/own/..", open + "/own/../", open + "/own/.", open + "/own/./", open + "/.././open/..", "..", ".", "./", "~/..", "/", "//", "/..", "/.", ""} {
			if status, body := e.asNobody("Remove", m{"path": path}); status != 400 || !strings.Contains(fmt.Sprint(body["message"]), "refusing") {
				t.Errorf("%s: %q: %d %v", what, path, status, body)
			}
			if path == "" {
				continue
			}
			if status, body := e.asNobody("Move", m{"source": path, "destination": open + "/gone"}); status == 200 {
				t.Errorf("%s: move %q: %v", what, path, body)
			}
		}
		if what == "strict" {
			// The directory belongs to nobody and its parent to root, so it could be emptied but not removed.
			if status, body := e.asNobody("Remove", m{"path": open}); status != 403 {
				t.Errorf("%d %v", status, body)
			}
		}
		for _, path := range kept {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if status, body := start(t).asNobody("Remove", m{"path": open + "/"}); status != 200 {
		t.Errorf("%d %v", status, body)
	}
}
