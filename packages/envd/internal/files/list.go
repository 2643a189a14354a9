package files

// ListDir: the entries of a directory, and of those below it within a depth.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

const (
	// One answer is built in memory.
	maxListedEntries = 100_000
	// Each level uses a descriptor.
	maxListedDepth = 256
)

// listing is an answer while it is built.
type listing struct {
	ctx     context.Context
	who     caller
	names   account.Names
	lent    bool
	entries []*Entry
	// withheld means that a directory below could not be read with these rights.
	withheld bool
}

func (s *Service) listDir(ctx context.Context, request *listRequest) (*listResponse, error) {
	who, path, err := s.callerAt(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	names := account.ReadNames()
	var answer *listResponse
	err = who.at(path, followLast, func(p place) error {
		listed := &listing{ctx: ctx, who: who, names: names, lent: p.lent}
		if err := listed.begin(p, max(int(request.Depth), 1)); err != nil {
			return err
		}
		answer = &listResponse{listed.entries}
		if listed.withheld && !p.lent {
			return unix.EACCES // envd may be able to see more
		}
		return nil
	})
	if err != nil && (answer == nil || failure.Of(err).Code != failure.PermissionDenied) {
		return nil, missing(err, path, who)
	}
	return answer, nil
}

func (l *listing) begin(p place, depth int) error {
	info, err := p.stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return failure.New(failure.InvalidArgument, "path is not a directory: %s", p.shown)
	}
	dir, err := openDirectory(p.path, p.flags())
	if err != nil {
		return err
	}
	return l.add(dir, p.shown, depth, 1)
}

// add lists one directory and, within depth, those below it; links inside are shown, not followed.
func (l *listing) add(dir *os.File, shown string, depth, level int) error {
	defer dir.Close()
	children, err := dir.ReadDir(-1)
	if err != nil {
		return err
	}
	slices.SortFunc(children, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, child := range children {
		if len(l.entries) >= maxListedEntries {
			return failure.New(failure.ResourceExhausted, "more than %d entries: list a smaller depth", maxListedEntries)
		}
		if err := l.ctx.Err(); err != nil {
			return err
		}
		info, err := child.Info()
		if err != nil {
			continue // removed meanwhile
		}
		at := place{path: filepath.Join(dir.Name(), child.Name()), shown: filepath.Join(shown, child.Name()), lent: l.lent}
		l.entries = append(l.entries, l.who.describeInfo(at, info, l.names))
		if depth <= 1 || !info.IsDir() {
			continue
		}
		if level == maxListedDepth {
			return failure.New(failure.ResourceExhausted, "directories nest deeper than %d: list a smaller depth", maxListedDepth)
		}
		below, err := openDirectory(at.path, unix.O_NOFOLLOW)
		if err == nil {
			err = l.add(below, at.shown, depth-1, level+1)
		}
		switch {
		case os.IsPermission(err):
			l.withheld = true
		case err != nil && !os.IsNotExist(err) && !errors.Is(err, unix.ELOOP) && !errors.Is(err, unix.ENOTDIR): // replaced meanwhile
			return err
		}
	}
	return nil
}

// openDirectory names the file by its descriptor, so that entries below it are reached through no link.
func openDirectory(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|openFlags|flags, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("/proc/self/fd/%d", fd)), nil
}
