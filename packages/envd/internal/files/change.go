package files

// The calls that change the tree: make, move, remove.

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

func (s *Service) makeDir(ctx context.Context, request *pathRequest) (*entryResponse, error) {
	who, path, err := s.callerAt(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	err = who.at(path, followLast|makeParents, func(p place) error {
		switch info, err := p.stat(); {
		case err == nil && info.IsDir():
			return failure.New(failure.AlreadyExists, "directory already exists: %s", path)
		case err == nil:
			return failure.New(failure.InvalidArgument, "path already exists but it is not a directory: %s", path)
		}
		return who.makeDirAt(unix.AT_FDCWD, p.path)
	})
	if err != nil {
		return nil, failure.About(err, "cannot make directory '%s' as user '%s'", path, who.Name)
	}
	return entryAt(who, path)
}

func (s *Service) move(ctx context.Context, request *moveRequest) (*entryResponse, error) {
	who, source, err := s.callerAt(ctx, request.Source)
	if err != nil {
		return nil, err
	}
	destination, err := who.Resolve(request.Destination)
	if err != nil {
		return nil, err
	}
	if endsInDots(request.Source) {
		return nil, failure.New(failure.InvalidArgument, "refusing to move '%s': a path that ends in . or .. names a directory by what is below it", request.Source)
	}
	err = who.Do(func() error {
		if _, err := os.Lstat(source); err != nil {
			return missing(err, source, who)
		}
		if err := who.makeDirs(filepath.Dir(destination)); err != nil {
			return err
		}
		return rename(ctx, source, destination)
	})
	if who.borrows(err) {
		err = account.Lend(func() error { return who.lentMove(ctx, source, destination) })
	}
	if err != nil {
		return nil, failure.About(err, "cannot move '%s' to '%s' as user '%s'", source, destination, who.Name)
	}
	return entryAt(who, destination)
}

func (c caller) lentMove(ctx context.Context, source, destination string) error {
	from, name, err := c.walk(source, 0)
	if err != nil {
		return missing(err, source, c)
	}
	defer unix.Close(from)
	at := below(from, name, source)
	// The source is checked before any parent of the destination is created.
	if _, err := os.Lstat(at.path); err != nil {
		return missing(err, source, c)
	}
	to, name, err := c.walk(destination, makeParents)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	return rename(ctx, at.path, below(to, name, destination).path)
}

func rename(ctx context.Context, source, destination string) error {
	err := os.Rename(source, destination)
	if errors.Is(err, unix.EXDEV) {
		return moveAcross(ctx, source, destination)
	}
	return err
}

func (s *Service) remove(ctx context.Context, request *pathRequest) (*empty, error) {
	who, path, err := s.callerAt(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	if path == "/" || request.Path == "" || endsInDots(request.Path) {
		return nil, failure.New(failure.InvalidArgument, "refusing to remove '%s': name the file or directory itself, and not /", request.Path)
	}
	err = who.at(path, 0, func(p place) error {
		// A directory that may not be removed itself must not be emptied first.
		if err := who.mayUnlink(p); err != nil {
			return err
		}
		return os.RemoveAll(p.path)
	})
	if os.IsNotExist(err) || errors.Is(err, unix.ENOTDIR) {
		err = nil
	}
	if err != nil {
		return nil, failure.About(err, "cannot remove '%s' as user '%s'", path, who.Name)
	}
	return &empty{}, nil
}

// endsInDots detects paths that, once cleaned, would name the parent of the directory that they seem to name.
func endsInDots(path string) bool {
	last := filepath.Base(strings.TrimRight(path, "/"))
	return path != "" && (last == "." || last == "..")
}

// mayUnlink asks the kernel whether a name may be removed from its directory; the sticky bit is checked here.
func (c caller) mayUnlink(p place) error {
	parent := filepath.Dir(p.path)
	if err := unix.Faccessat(unix.AT_FDCWD, parent, unix.W_OK|unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	var dir, entry unix.Stat_t
	if err := unix.Stat(parent, &dir); err != nil {
		return err
	}
	if err := unix.Lstat(p.path, &entry); err != nil {
		return err
	}
	if own := uint32(unix.Geteuid()); dir.Mode&unix.S_ISVTX != 0 && own != 0 && own != dir.Uid && own != entry.Uid {
		return unix.EPERM
	}
	return nil
}
