package files

// Moving between file systems: copy beside the destination, rename into place, then remove the source.

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

func moveAcross(ctx context.Context, source, destination string) error {
	beside := besides(destination)
	if err := copyTree(ctx, source, beside); err != nil {
		_ = os.RemoveAll(beside)
		return err
	}
	if err := os.Rename(beside, destination); err != nil {
		_ = os.RemoveAll(beside)
		return err
	}
	return os.RemoveAll(source)
}

// besides is a fresh name in the same directory, so that a rename is atomic.
func besides(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%.64s.%s", filepath.Base(path), rand.Text()[:12]))
}

func copyTree(ctx context.Context, source, destination string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	info, err := os.Lstat(source)
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		target, err := os.Readlink(source)
		if err != nil {
			return err
		}
		return os.Symlink(target, destination)
	case mode.IsRegular():
		err = copyFile(source, destination, mode.Perm())
	case mode.IsDir():
		err = copyDirectory(ctx, source, destination, mode.Perm())
	default:
		return failure.New(failure.FailedPrecondition, "'%s' is neither file, directory nor link and cannot move to another file system", source)
	}
	if err != nil {
		return err
	}
	return os.Chtimes(destination, info.ModTime(), info.ModTime())
}

func copyDirectory(ctx context.Context, source, destination string, mode fs.FileMode) error {
	children, err := os.ReadDir(source)
	if err != nil {
		return err
	}
	if err := os.Mkdir(destination, 0o700); err != nil {
		return err
	}
	for _, child := range children {
		if err := copyTree(ctx, filepath.Join(source, child.Name()), filepath.Join(destination, child.Name())); err != nil {
			return err
		}
	}
	return os.Chmod(destination, mode)
}

func copyFile(source, destination string, mode fs.FileMode) error {
	in, err := os.OpenFile(source, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(destination, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if metadata := readMetadata(source); err == nil && len(metadata) > 0 {
		err = replaceMetadata(int(out.Fd()), metadata)
	}
	if err == nil {
		err = out.Chmod(mode)
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}
