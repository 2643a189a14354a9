package files

// Decides with which rights a call reaches a path: the user's own, and if those do not suffice, envd's.
//
//	path ── the user's rights ──▶ done, or failed for another reason
//	             │ permission denied, and the sandbox is not strict
//	             ▼
//	        envd's rights, component by component and by descriptor: only root's links are followed,
//	        so that a user's program cannot redirect a call by a link
//
// Files that are created with envd's rights are given to the user. E2B's clients expect both.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

const (
	followLast  = 1 << iota // if the path ends in a link, act on its target
	makeParents             // create missing parent directories
)

const (
	maxFollowedLinks = 40 // as in the kernel
	newDirectoryMode = 0o755
)

// caller is the user that a request acts for.
type caller struct {
	account.Account
	strict bool // envd does not lend its rights
}

// place is the path to act on, with the rights that the calling thread has at that moment.
type place struct {
	path  string // for system calls
	shown string // as the client knows it
	lent  bool   // envd's rights are used, so a link at the end of path must not be followed
}

func (s *Service) caller(ctx context.Context) (caller, error) {
	user, err := account.Of(ctx)
	return caller{user, s.strict()}, err
}

// callerAt looks up the user and makes the path absolute.
func (s *Service) callerAt(ctx context.Context, path string) (caller, string, error) {
	who, err := s.caller(ctx)
	if err != nil {
		return who, "", err
	}
	path, err = who.Resolve(path)
	return who, path, err
}

// at runs act on the path, and again with envd's rights if the user's were refused.
func (c caller) at(path string, how int, act func(place) error) error {
	err := c.Do(func() error {
		if how&makeParents != 0 {
			if err := c.makeDirs(filepath.Dir(path)); err != nil {
				return err
			}
		}
		return act(place{path: path, shown: path})
	})
	if !c.borrows(err) {
		return err
	}
	return account.Lend(func() error {
		dir, name, err := c.walk(path, how)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return act(below(dir, name, path))
	})
}

// borrows reports whether the kernel's refusal is one that envd's rights may override.
func (c caller) borrows(err error) bool {
	return err != nil && !c.strict && c.UID != 0 && os.Geteuid() == 0 && failure.Of(err).Code == failure.PermissionDenied
}

func below(dir int, name, shown string) place {
	return place{path: fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), shown: shown, lent: true}
}

// flags returns the flags that an open of this place must add.
func (p place) flags() int {
	if p.lent {
		return unix.O_NOFOLLOW
	}
	return 0
}

func (p place) stat() (os.FileInfo, error) {
	if p.lent {
		return os.Lstat(p.path)
	}
	return os.Stat(p.path)
}

// makeDirs creates the missing directories of a path; call it with the user's rights.
func (c caller) makeDirs(path string) error {
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return nil
	case err == nil || errors.Is(err, unix.ENOTDIR):
		return notDirectory(path)
	case !os.IsNotExist(err):
		return err
	}
	if err := c.makeDirs(filepath.Dir(path)); err != nil {
		return err
	}
	return c.makeDirAt(unix.AT_FDCWD, path)
}

func notDirectory(path string) error {
	return failure.New(failure.InvalidArgument, "a part of the path '%s' is not a directory", path)
}

// makeDirAt sets the owner even if it is already the user, so that watchers see the same events as with E2B's envd.
func (c caller) makeDirAt(dir int, name string) error {
	if err := unix.Mkdirat(dir, name, newDirectoryMode); err != nil {
		if err == unix.EEXIST {
			return nil // another process created it meanwhile
		}
		return err
	}
	return unix.Fchownat(dir, name, c.UID, c.GID, unix.AT_SYMLINK_NOFOLLOW)
}

// walk opens the directory that contains the path's last part; call it with envd's rights. The caller closes it.
func (c caller) walk(path string, how int) (dir int, name string, err error) {
	if dir, err = openPath(unix.AT_FDCWD, "/"); err != nil {
		return -1, "", err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(dir)
		}
	}()
	step := func(next int) {
		_ = unix.Close(dir)
		dir = next
	}
	rest, links := parts(path), 0
	for len(rest) > 0 {
		name, rest = rest[0], rest[1:]
		isLast := len(rest) == 0
		if isLast && name != ".." && how&followLast == 0 {
			return dir, name, nil
		}
		next, err := openPath(dir, name)
		if err == unix.ENOENT {
			if isLast {
				return dir, name, nil
			}
			if how&makeParents == 0 {
				return dir, "", err
			}
			if err = c.makeDirAt(dir, name); err == nil {
				next, err = openPath(dir, name)
			}
		}
		if err == unix.ENOTDIR && how&makeParents != 0 {
			err = notDirectory(path)
		}
		if err != nil {
			return dir, "", err
		}
		target, err := c.linkTarget(next, path)
		switch {
		case err != nil:
			_ = unix.Close(next)
			return dir, "", err
		case target == "" && isLast && name != "..":
			_ = unix.Close(next)
			return dir, name, nil
		case target == "":
			step(next)
			continue
		}
		_ = unix.Close(next)
		if links++; links > maxFollowedLinks {
			return dir, "", unix.ELOOP
		}
		if target[0] == '/' {
			root, err := openPath(unix.AT_FDCWD, "/")
			if err != nil {
				return dir, "", err
			}
			step(root)
		}
		rest = append(parts(target), rest...)
	}
	return dir, ".", nil
}

// linkTarget returns "" if it is not a link. It fails for a link that may not be followed with envd's rights.
func (c caller) linkTarget(fd int, path string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return "", err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", nil
	}
	if stat.Uid != 0 {
		return "", failure.New(failure.PermissionDenied,
			"'%s' leads over a link that is not root's: such a link is followed with the rights of user '%s' only, which do not suffice", path, c.Name)
	}
	// The link is read by descriptor, since its name may refer to another link by now.
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(target[:max(n, 0)]), err
}

func openPath(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

func parts(path string) []string {
	named := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	kept := named[:0]
	for _, name := range named {
		if name != "." {
			kept = append(kept, name)
		}
	}
	return kept
}
