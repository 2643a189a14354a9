package files

// Opens a file for a client: the kernel checks the open, and the descriptor keeps the rights.

import (
	"os"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

// O_NONBLOCK is set because opening a FIFO without a writer must not hang.
const openFlags = unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC

// openFile opens with additional flags and refuses everything but regular files. A file opened with O_CREAT belongs to the user afterwards, even if it existed
// before and the user's rights did not suffice to write it.
func openFile(who caller, path string, flags int) (*os.File, error) { // I17
	var file *os.File
	how := followLast
	if flags&unix.O_CREAT != 0 {
		how |= makeParents
	}
	err := who.at(path, how, func(p place) error {
		if info, err := p.stat(); flags&unix.O_CREAT != 0 && err == nil && info.IsDir() {
			return failure.New(failure.InvalidArgument, "path is a directory: %s", path)
		}
		fd, err := openRetrying(p.path, flags|p.flags())
		if err != nil {
			return err
		}
		if err = regular(fd, path); err == nil && flags&unix.O_CREAT != 0 {
			// Watchers see a new file as CREATE, CHMOD, WRITE, as with E2B's envd.
			// EPERM means that the user may write another user's file, or that it is a file of the kernel: its owner stays.
			if err = unix.Fchown(fd, who.UID, who.GID); err == unix.EPERM {
				err = nil
			}
		}
		if err != nil {
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
	return file, missing(err, path, who)
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
