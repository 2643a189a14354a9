package files

// Opening a file for a client: the kernel judges the open with the user's rights, the descriptor keeps them.

import (
	"os"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

// O_NONBLOCK: opening a FIFO nobody writes to must not hang.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// openFile opens with one flag set more and refuses all but regular files.
func openFile(user account.Account, path string, flags int) (*os.File, error) {
	var file *os.File
	err := user.Do(func() error {
		if flags&unix.O_CREAT != 0 {
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				return failure.New(failure.InvalidArgument, "path is a directory: %s", path)
			}
			if err := parents(path, user); err != nil {
				return err
			}
		}
		fd, err := openRetrying(path, flags)
		if err != nil {
			return err
		}
		if err := regular(fd, path); err != nil {
			_ = unix.Close(fd)
			return err
		}
		_ = unix.SetNonblock(fd, false)
		file = os.NewFile(uintptr(fd), path)
		return nil
	})
	if err == unix.ENXIO {
		err = failure.New(failure.InvalidArgument, "not a regular file: %s", path)
	}
	return file, missing(err, path, user)
}

func openRetrying(path string, flags int) (int, error) {
	for {
		fd, err := unix.Open(path, flags|openFlags, 0o666)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

func regular(fd int, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return nil
	case unix.S_IFDIR:
		return failure.New(failure.InvalidArgument, "path '%s' is a directory", path)
	}
	return failure.New(failure.InvalidArgument, "path '%s' is not a regular file", path)
}
