// Extended attributes survive listing and applying, whatever bytes they contain.
package attributes

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAttributesArriveByteForByte(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	values := map[string][]byte{"user.text": []byte("text"), "user.bytes": {0, 0x80, 0xff, '\n', 0}, "user.empty": {}}
	for _, root := range []string{from, to} {
		if err := os.MkdirAll(filepath.Join(root, "a dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "a dir/file"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range values {
		if err := unix.Setxattr(filepath.Join(from, "a dir/file"), name, value, 0); err != nil {
			t.Skip("no attributes on this file system:", err)
		}
	}
	var lines bytes.Buffer
	if err := List(from, strings.NewReader("./\x00./a dir/\x00./a dir/file\x00./gone\x00"), &lines); err != nil {
		t.Fatal(err)
	}
	if err := Apply(to, &lines); err != nil {
		t.Fatal(err)
	}
	for name, want := range values {
		buffer := make([]byte, 100)
		n, err := unix.Getxattr(filepath.Join(to, "a dir/file"), name, buffer)
		if err != nil || !bytes.Equal(buffer[:n], want) {
			t.Errorf("%s: %q, %v", name, buffer[:max(n, 0)], err)
		}
	}
}

func TestNoLineReachesOutOfTheTreeOrSetsTheFileSystemsOwn(t *testing.T) {
	root, outside := t.TempDir(), filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(outside, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(outside), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for line, refused := range map[string]bool{
		`{"path":"link/file","name":"user.x","value":"eA=="}`:         false, // skipped
		`{"path":"` + outside + `","name":"user.x","value":"eA=="}`:   true,
		`{"path":"../file","name":"user.x","value":"eA=="}`:           true,
		`{"path":".","name":"trusted.overlay.opaque","value":"eQ=="}`: true,
		`{"path":".","name":"user.x","value":"not base64"}`:           true,
		`{"path":"never","name":"user.x","value":"eA=="}`:             false,
		`{"path":".","name":"security.selinux","value":"eA=="}`:       true,
	} {
		if err := Apply(root, strings.NewReader(line)); (err != nil) != refused {
			t.Errorf("%s: %v", line, err)
		}
	}
	if n, _ := unix.Listxattr(outside, make([]byte, 100)); n != 0 {
		t.Error("an attribute was set outside the tree")
	}
}
