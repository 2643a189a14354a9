package main

// Trees for the tests of archives: created at random, packed and unpacked by GNU tar, described as text.

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// tarOf returns the archive that the command line would send.
func tarOf(t *testing.T, dir string) []byte {
	t.Helper()
	made := exec.Command("tar", "-c", "--format=pax", "--sparse", "--xattrs", "--xattrs-include=user.*", "-C", dir, "--", ".")
	made.Env = append(os.Environ(), "LC_ALL=C")
	var words bytes.Buffer
	made.Stderr = &words
	archive, err := made.Output()
	if err != nil {
		t.Fatalf("tar: %v %s", err, words.Bytes())
	}
	return archive
}

func untar(t *testing.T, archive []byte) string {
	t.Helper()
	dir := t.TempDir()
	read := exec.Command("tar", "-x", "-p", "--warning=no-timestamp", "--xattrs", "--xattrs-include=user.*", "-C", dir)
	read.Env = append(os.Environ(), "LC_ALL=C")
	read.Stdin = bytes.NewReader(archive)
	if said, err := read.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("tar: %v %s", err, said)
	}
	return dir
}

// described returns a tree as text, with everything that a copy must preserve. A file counts as sparse when it uses less than half of its size.
func described(t *testing.T, root string, withRoot bool) map[string]string {
	t.Helper()
	found, numbers := map[string]string{}, map[uint64]string{}
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf("%v %d", info.Mode(), info.ModTime().UnixNano())
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			line += fmt.Sprintf(" -> %q", target)
		case info.Mode().IsRegular():
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x sparse=%v", len(content), hashOf(content), len(content) > 1<<20 && stat.Blocks*512 < int64(len(content))/2)
			if first, known := numbers[stat.Ino]; known {
				line += " = " + first
			} else if stat.Nlink > 1 {
				numbers[stat.Ino] = path[len(root):]
			}
		}
		if info.Mode()&os.ModeSymlink == 0 {
			names := make([]byte, 4096)
			n, _ := unix.Listxattr(path, names)
			for _, name := range strings.FieldsFunc(string(names[:max(n, 0)]), func(r rune) bool { return r == 0 }) {
				if strings.HasPrefix(name, "user.") {
					value := make([]byte, 4096)
					n, _ := unix.Getxattr(path, name, value)
					line += fmt.Sprintf(" %q=%q", name, value[:max(n, 0)])
				}
			}
		}
		if withRoot || path != root {
			found[fmt.Sprintf("%q", path[len(root):])] = line
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func same(t *testing.T, when string, sent, got map[string]string) {
	t.Helper()
	for name := range maps.Keys(sent) {
		if sent[name] != got[name] {
			t.Errorf("%s: %.80s\nwas %s\nis  %s", when, name, sent[name], got[name])
		}
	}
	if len(got) != len(sent) {
		t.Errorf("%s: %d entries, %d were sent", when, len(got), len(sent))
	}
}

func hashOf(content []byte) uint64 {
	sum := uint64(14695981039346656037)
	for _, b := range content {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return sum
}

// plant creates a random tree below dir.
func plant(t *testing.T, random *rand.Rand, dir string, takesAttributes bool) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	name := func() string {
		raw := make([]byte, 1+random.IntN(12))
		for i := range raw {
			for raw[i] == 0 || raw[i] == '/' {
				raw[i] = byte(random.IntN(256))
			}
		}
		if random.IntN(8) == 0 {
			raw = bytes.Repeat(raw[:1], 200)
		}
		if text := string(raw); text == "." || text == ".." {
			return "dot"
		}
		return string(raw)
	}
	dirs, files := []string{dir}, []string{}
	for range 5 + random.IntN(40) {
		path := filepath.Join(dirs[random.IntN(len(dirs))], name())
		if _, err := os.Lstat(path); err == nil || len(path) > 2000 {
			continue
		}
		switch random.IntN(6) {
		case 0, 1:
			must(os.Mkdir(path, 0o755))
			dirs = append(dirs, path)
		case 2:
			must(os.Symlink(name(), path))
			at := unix.NsecToTimespec(random.Int64N(2e18))
			must(unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW))
			continue
		case 3:
			if len(files) > 0 {
				must(os.Link(files[random.IntN(len(files))], path))
				continue
			}
			fallthrough
		default:
			content := make([]byte, random.IntN(3000))
			for i := range content {
				content[i] = byte(random.IntN(256))
			}
			must(os.WriteFile(path, content, 0o600))
			if random.IntN(4) == 0 {
				file, err := os.OpenFile(path, os.O_WRONLY, 0)
				must(err)
				at := int64(random.IntN(40)) << 16
				_, err = file.WriteAt([]byte("after a hole"), at+int64(random.IntN(5000)))
				must(err)
				if random.IntN(2) == 0 {
					must(file.Truncate(at + 5<<20))
				}
				must(file.Close())
			}
			files = append(files, path)
		}
	}
	for _, path := range slices.Concat(files, dirs[1:]) {
		if takesAttributes && random.IntN(3) == 0 {
			must(unix.Setxattr(path, "user.key\xc3\xa9", []byte("line\none\x00\xff"), 0))
		}
		must(os.Chmod(path, os.FileMode(random.IntN(0o1000))|0o600))
	}
	slices.Reverse(dirs)
	for _, path := range slices.Concat(files, dirs) {
		must(os.Chtimes(path, time.Time{}, time.Unix(0, random.Int64N(2e18))))
	}
	for _, path := range dirs[:len(dirs)-1] {
		info, err := os.Stat(path)
		must(err)
		must(os.Chmod(path, info.Mode()|0o700))
	}
}
