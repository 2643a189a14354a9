// Package attributes copies extended attributes of files from one tree to its copy, since an archive cannot contain them.
package attributes

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	maxValue = 64 << 10 // XATTR_SIZE_MAX, which also limits the list of names
	maxLine  = 4 * maxValue
)

// record is one attribute of one file; the path is relative to the tree.
type record struct {
	Path  string `json:"path"`
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// carried reports whether an attribute belongs to the file itself. The trusted ones are the file system's own bookkeeping.
func carried(name string) bool {
	switch name {
	case "security.capability", "system.posix_acl_access", "system.posix_acl_default":
		return true
	}
	return strings.HasPrefix(name, "user.")
}

// List reads paths, each ended by NUL, and writes a line for every attribute found below root. Files that no longer exist are skipped.
func List(root string, paths io.Reader, lines io.Writer) error {
	scanner := bufio.NewScanner(paths)
	scanner.Buffer(nil, maxLine)
	scanner.Split(untilNUL)
	out := bufio.NewWriter(lines)
	encoder := json.NewEncoder(out)
	names, value := make([]byte, maxValue), make([]byte, maxValue)
	for scanner.Scan() {
		path := scanner.Text()
		full := filepath.Join(root, path)
		n, err := unix.Llistxattr(full, names)
		if err != nil {
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENOTSUP) {
				continue
			}
			return fmt.Errorf("%s: cannot list attributes: %w", path, err)
		}
		for _, name := range strings.Split(strings.TrimSuffix(string(names[:n]), "\x00"), "\x00") {
			if !carried(name) {
				continue
			}
			n, err := unix.Lgetxattr(full, name, value)
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODATA) {
				continue
			}
			if err != nil {
				return fmt.Errorf("%s: cannot read %s: %w", path, name, err)
			}
			if err := encoder.Encode(record{path, name, value[:n]}); err != nil {
				return err
			}
		}
	}
	return errors.Join(scanner.Err(), out.Flush())
}

func untilNUL(data []byte, atEOF bool) (int, []byte, error) {
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return at + 1, data[:at], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// Apply reads List's lines and sets the attributes on the files below root. No path can lead out of it, since the tree may be hostile.
func Apply(root string, lines io.Reader) error {
	top, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", root, err)
	}
	defer unix.Close(top)
	decoder := json.NewDecoder(bufio.NewReader(lines))
	for {
		var r record
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("not a line of attributes: %w", err)
		}
		if !carried(r.Name) {
			return fmt.Errorf("%s: the attribute %s is not one to be set", r.Path, r.Name)
		}
		if err := set(top, r); err != nil {
			return fmt.Errorf("%s: cannot set %s: %w", r.Path, r.Name, err)
		}
	}
}

func set(top int, r record) error {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(top, r.Path, &how)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil // It is not part of the copy, or it is a symbolic link, which has no such attributes.
	}
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), r.Path)
	defer file.Close()
	return unix.Setxattr(fmt.Sprintf("/proc/self/fd/%d", fd), r.Name, r.Value, 0)
}
