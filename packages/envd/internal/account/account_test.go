package account

// Users and groups, as the sandbox's own files define them.

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestAUserIsReadFromTheFilesOfTheMoment(t *testing.T) {
	dir := t.TempDir()
	passwd, group := filepath.Join(dir, "passwd"), filepath.Join(dir, "group")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(passwd, "root:x:0:0::/root:/bin/sh\nbroken line\nuser:x:1000:1000:A User:/home/user:/bin/bash\n42:x:7:7::relative:/bin/sh\nlast:x:42:42::/h:/bin/sh\n")
	write(group, "root:x:0:\nuser:x:1000:user\ndocker:x:999:other,user\nnot:x:998:users\n")
	got, err := find(passwd, group, "user")
	if err != nil || got.UID != 1000 || got.Home != "/home/user" || fmt.Sprint(got.Groups) != "[1000 999]" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := find(passwd, group, "1000"); err != nil || got.Name != "user" {
		t.Errorf("by number: %+v, %v", got, err)
	}
	if got, err := find(passwd, group, "42"); err != nil || got.UID != 7 || got.Home != "/" {
		t.Errorf("a name beats a number: %+v, %v", got, err)
	}
	for name, want := range map[string]string{"1234": "1234 0 [0] /", "1234:1234": "1234 1234 [1234] /", "user:docker": "1000 999 [999] /home/user", "user:7": "1000 7 [7] /home/user"} {
		if got, err := find(passwd, group, name); err != nil || fmt.Sprintf("%d %d %v %s", got.UID, got.GID, got.Groups, got.Home) != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, name := range []string{"", "nobody", "us", "a:b", "user:", ":7", "user:nobody", "user:7:7", "4294967295", "-1"} {
		if got, err := find(passwd, group, name); err == nil {
			t.Errorf("%q is %+v", name, got)
		}
	}
	write(passwd, "new:x:5:5::/new:/bin/sh\n")
	if _, err := find(passwd, group, "new"); err != nil {
		t.Error(err)
	}
}

func TestPathsStartAtTheUsersHome(t *testing.T) {
	user := Account{Home: "/home/user"}
	for path, want := range map[string]string{"": "/home/user", "~": "/home/user", "~/a": "/home/user/a", "a/../b": "/home/user/b", "/a//b/./c/": "/a/b/c", "..": "/home"} {
		if got, err := user.Resolve(path); err != nil || got != want {
			t.Errorf("%q: %q, %v", path, got, err)
		}
	}
	for _, path := range []string{"~other", "~other/x", "a\x00b"} {
		if got, err := user.Resolve(path); err == nil {
			t.Errorf("%q: %q", path, got)
		}
	}
}
