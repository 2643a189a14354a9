package files

// GET /files/tree: a file or a directory with everything below it, as an archive in the pax format.
//
// The archive contains names of any bytes, modes, times in nanoseconds, symbolic links, hard links, holes (GNU sparse format 1.0) and attributes of the
// namespace `user`. `plan=true` leaves contents out.

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

const (
	// Both ends keep a plan of the tree in memory.
	maxTreeEntries = 200_000
	// Each level uses a descriptor while the tree is walked.
	maxTreeDepth = 256
	// The content of a file that reports no size is kept in memory.
	maxUnsizedBytes = 4 << 20
)

func (s *Service) sendTree(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	who, path, err := s.callerAt(r.Context(), query.Get("path"))
	if err != nil {
		failure.Write(w, err)
		return
	}
	root, err := openRoot(who, path)
	if err != nil {
		failure.Write(w, err)
		return
	}
	defer root.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("Cache-Control", "no-store")
	buffer := copyBuffers.Get().(*bufio.Writer)
	defer func() { buffer.Reset(nil); copyBuffers.Put(buffer) }()
	buffer.Reset(w)
	sender := &treeSender{ctx: r.Context(), who: who, archive: archiveWriter{buffer}, isPlan: query.Get("plan") == "true", linked: map[inode]string{}}
	err = sender.root(root, path)
	if err == nil {
		err = sender.archive.end()
	} else {
		// The status has already been sent, so the archive itself says why it ends here.
		_ = sender.archive.failed(failure.Of(failure.About(err, "cannot read below '%s'", path)).Message)
	}
	if err := buffer.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// openRoot follows a link, since the client named it. Entries below the root are never reached through a link.
func openRoot(who caller, path string) (*os.File, error) {
	var root *os.File
	err := who.at(path, followLast, func(p place) error {
		fd, err := openRetrying(p.path, unix.O_RDONLY|p.flags())
		if err == unix.ENXIO {
			return failure.New(failure.InvalidArgument, "path '%s' is not a regular file", path)
		}
		if err == nil {
			root = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	return root, missing(err, path, who)
}

type inode struct{ device, number uint64 }

type treeSender struct {
	ctx     context.Context
	who     caller
	archive archiveWriter
	isPlan  bool
	entries int
	linked  map[inode]string
}

func (t *treeSender) root(file *os.File, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return t.directory(file, "", &stat, 1)
	case unix.S_IFREG:
		return t.file(file, "file", &stat)
	}
	return failure.New(failure.InvalidArgument, "path '%s' is neither a file nor a directory", path)
}

// rights runs act with the user's rights, and with envd's if those are refused and the sandbox is not strict.
func (c caller) rights(act func() error) error {
	err := c.Do(act)
	if c.borrows(err) {
		err = account.Lend(act)
	}
	return err
}

type treeChild struct {
	name   string
	stat   unix.Stat_t
	target string
	gone   bool
}

func (t *treeSender) directory(dir *os.File, path string, stat *unix.Stat_t, level int) error {
	if level > maxTreeDepth {
		return failure.New(failure.ResourceExhausted, "directories nest deeper than %d", maxTreeDepth)
	}
	fd := int(dir.Fd())
	attributes, err := userAttributes(fd)
	if err != nil {
		return err
	}
	if err := t.count(); err != nil {
		return err
	}
	if err := t.archive.entry(archiveEntry{path: "./" + path, kind: kindDirectory, stat: stat, attributes: attributes}); err != nil {
		return err
	}
	children, err := t.children(dir)
	if err != nil {
		return err
	}
	if path != "" {
		path += "/"
	}
	for i := range children {
		child := &children[i]
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if !child.gone {
			if err := t.child(fd, child, path+child.name, level); err != nil {
				return err
			}
		}
	}
	return nil
}

// children inspects all entries of a directory in one act with the user's rights.
func (t *treeSender) children(dir *os.File) ([]treeChild, error) {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	children := make([]treeChild, len(names))
	err = t.who.rights(func() error {
		for i, name := range names {
			child := &children[i]
			child.name = name
			err := unix.Fstatat(int(dir.Fd()), name, &child.stat, unix.AT_SYMLINK_NOFOLLOW)
			if err == nil && child.stat.Mode&unix.S_IFMT == unix.S_IFLNK {
				target := make([]byte, unix.PathMax)
				var n int
				n, err = unix.Readlinkat(int(dir.Fd()), name, target)
				child.target = string(target[:max(n, 0)])
			}
			if child.gone = err == unix.ENOENT || err == unix.EINVAL; err != nil && !child.gone {
				return &fs.PathError{Op: "look at", Path: name, Err: err}
			}
		}
		return nil
	})
	return children, err
}

func (t *treeSender) child(dir int, child *treeChild, path string, level int) error {
	kind := child.stat.Mode & unix.S_IFMT
	switch kind {
	case unix.S_IFDIR, unix.S_IFREG:
	case unix.S_IFLNK:
		if err := t.count(); err != nil {
			return err
		}
		return t.archive.entry(archiveEntry{path: "./" + path, kind: kindLink, stat: &child.stat, target: child.target})
	default:
		if err := t.count(); err != nil {
			return err
		}
		return t.archive.entry(archiveEntry{path: "./" + path, kind: kindSpecial, stat: &child.stat})
	}
	var file *os.File
	err := t.who.rights(func() error {
		fd, err := unix.Openat(dir, child.name, unix.O_RDONLY|unix.O_NOFOLLOW|openFlags, 0)
		if err == nil {
			file = os.NewFile(uintptr(fd), path)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		return nil // It was removed, or replaced by a link.
	}
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	if stat.Mode&unix.S_IFMT != kind {
		return nil // It was replaced meanwhile.
	}
	if kind == unix.S_IFDIR {
		return t.directory(file, path, &stat, level+1)
	}
	return t.file(file, "./"+path, &stat)
}

func (t *treeSender) count() error {
	if t.entries++; t.entries > maxTreeEntries {
		return failure.New(failure.ResourceExhausted, "more than %d files and directories", maxTreeEntries)
	}
	return nil
}

func (t *treeSender) file(file *os.File, path string, stat *unix.Stat_t) error {
	if err := t.count(); err != nil {
		return err
	}
	if stat.Nlink > 1 {
		key := inode{uint64(stat.Dev), stat.Ino}
		if first, known := t.linked[key]; known {
			return t.archive.entry(archiveEntry{path: path, kind: kindHardLink, stat: stat, target: first})
		}
		t.linked[key] = path
	}
	attributes, err := userAttributes(int(file.Fd()))
	if err != nil {
		return err
	}
	entry := archiveEntry{path: path, kind: kindFile, stat: stat, attributes: attributes}
	if t.isPlan {
		entry.planned = true
		return t.archive.entry(entry)
	}
	if stat.Size == 0 {
		entry.unsized, err = unsizedContent(file, path)
	} else {
		entry.data, err = dataRanges(file, stat.Size)
	}
	if err != nil {
		return err
	}
	if err := t.archive.entry(entry); err != nil {
		return err
	}
	return t.archive.content(t.ctx, file, path, entry)
}

// unsizedContent reads a file that reports no size, since an entry's size comes before its content. Files of /proc and /sys have content all the same.
func unsizedContent(file *os.File, path string) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(file, maxUnsizedBytes+1))
	if err == nil && len(content) > maxUnsizedBytes {
		err = failure.New(failure.FailedPrecondition, "'%s' reports no size and has more than %d bytes: read it by a command", path, maxUnsizedBytes)
	}
	return content, err
}
