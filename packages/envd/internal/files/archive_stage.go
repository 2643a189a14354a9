package files

// The staging folder for a received archive, which belongs to the user, so that everything in it is done with the user's rights.

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

// stage is valid from openStage to remove.
type stage struct {
	who               caller
	fd, parent        int
	name              string
	withoutAttributes int
}

func (c caller) openStage(target string) (*stage, error) {
	s := &stage{who: c, fd: -1, parent: -1, name: ".svc-copy-" + rand.Text()[:12]}
	err := c.inParent(target, makeParents, func(dir int, name string) (err error) {
		there, err := standing(dir, name)
		if err != nil {
			return err
		}
		if there != "directory" {
			name = "."
		}
		// The directory may be a mount point, and renames must stay on one file system.
		if s.parent, err = openBelow(dir, name, unix.O_PATH); err != nil {
			return err
		}
		if err = unix.Mkdirat(s.parent, s.name, 0o700); err == nil {
			if err = unix.Fchownat(s.parent, s.name, c.UID, c.GID, unix.AT_SYMLINK_NOFOLLOW); err == nil {
				s.fd, err = openBelow(s.parent, s.name, unix.O_RDONLY)
			}
		}
		if err != nil {
			s.remove()
		}
		return err
	})
	return s, err
}

func (s *stage) remove() {
	if s.parent >= 0 {
		_ = os.RemoveAll(fmt.Sprintf("/proc/self/fd/%d/%s", s.parent, s.name))
		_ = unix.Close(s.parent)
	}
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
	}
	s.fd, s.parent = -1, -1
}

func (s *stage) unpack(ctx context.Context, body io.Reader) (*node, error) {
	planned := newPlannedTree()
	archive := tar.NewReader(bufio.NewReaderSize(body, copyBytes))
	broken := func(err error) error {
		if errors.As(err, new(unix.Errno)) && !errors.Is(err, unix.ECONNRESET) {
			return err
		}
		return failure.New(failure.InvalidArgument, "the upload broke off: %w", err)
	}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, broken(err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.entry(planned, header, archive); err != nil {
			return nil, err
		}
	}
	// The sender ends its request properly only if it could read all of its files.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return nil, broken(err)
	}
	if planned.root == nil {
		return nil, failure.New(failure.InvalidArgument, "the archive is empty")
	}
	return planned.root, nil
}

// unpackOne takes a body as the content of one file, whose size is unknown before its end.
func (s *stage) unpackOne(body io.Reader) (*node, error) {
	n := &node{kind: kindFile, mode: 0o644}
	file, err := s.create(stagedTree)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := pour(file, body); err != nil {
		return nil, err
	}
	n.modified = time.Now()
	return n, s.finish(file, n)
}

func (s *stage) create(at string) (*os.File, error) {
	var file *os.File
	err := s.who.Do(func() error {
		fd, err := unix.Openat(s.fd, at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			file = os.NewFile(uintptr(fd), at)
		}
		return err
	})
	return file, err
}

func (s *stage) entry(planned *plannedTree, header *tar.Header, content io.Reader) error {
	kinds := map[byte]byte{tar.TypeReg: kindFile, tar.TypeGNUSparse: kindFile, tar.TypeLink: kindFile, tar.TypeSymlink: kindLink, tar.TypeDir: kindDirectory}
	kind, known := kinds[header.Typeflag]
	if !known {
		return failure.New(failure.InvalidArgument, "the archive's entry '%s' is neither a file, a directory nor a link", header.Name)
	}
	n, clean, err := planned.add(header.Name, kind)
	if err != nil {
		return err
	}
	n.note(header)
	at := path.Join(stagedTree, clean)
	switch header.Typeflag {
	case tar.TypeDir:
		return s.who.Do(func() error { return unix.Mkdirat(s.fd, at, 0o700) })
	case tar.TypeSymlink:
		return s.who.Do(func() error {
			if err := unix.Symlinkat(header.Linkname, s.fd, at); err != nil {
				return err
			}
			when := timespec(n)
			return unix.UtimesNanoAt(s.fd, at, []unix.Timespec{when, when}, unix.AT_SYMLINK_NOFOLLOW)
		})
	case tar.TypeLink:
		first := path.Clean(header.Linkname)
		if to := planned.byPath[first]; to == nil || to.kind != kindFile || to == n {
			return failure.New(failure.InvalidArgument, "the archive's entry '%s' is a hard link to '%s', but no such file came before it", header.Name, header.Linkname)
		}
		return s.who.Do(func() error { return unix.Linkat(s.fd, path.Join(stagedTree, first), s.fd, at, 0) })
	}
	return s.file(n, at, header, content)
}

func timespec(n *node) unix.Timespec { return unix.NsecToTimespec(n.modified.UnixNano()) }

func (s *stage) file(n *node, at string, header *tar.Header, content io.Reader) error {
	file, err := s.create(at)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, sparse := header.PAXRecords["GNU.sparse.realsize"]; sparse || header.Typeflag == tar.TypeGNUSparse {
		err = pourSparse(file, content, header.Size)
	} else {
		err = pour(file, content)
	}
	if err == nil {
		err = s.finish(file, n)
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

// finish sets the attributes, mode and time of a file or directory, in this order, since the mode may forbid setting attributes.
func (s *stage) finish(file *os.File, n *node) error {
	for name, value := range n.attributes {
		if err := unix.Fsetxattr(int(file.Fd()), name, []byte(value), 0); err == unix.ENOTSUP {
			s.withoutAttributes++
			break
		} else if err != nil {
			return failure.About(err, "cannot set the attribute %q", name)
		}
	}
	if err := unix.Fchmod(int(file.Fd()), n.mode); err != nil {
		return err
	}
	return os.Chtimes(descriptorPath(file), n.modified, n.modified)
}

// pourSparse leaves holes where whole steps are zero.
func pourSparse(file *os.File, content io.Reader, size int64) error {
	chunk := make([]byte, holeBytes)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(content, chunk[:min(int64(len(chunk)), size-at)])
		if err != nil {
			return failure.New(failure.InvalidArgument, "the upload broke off: %w", err)
		}
		if string(chunk[:n]) != string(zeros[:n]) {
			if _, err := file.WriteAt(chunk[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
	}
	return file.Truncate(size)
}
