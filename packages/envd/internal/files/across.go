package files

// Moves between file systems: copies next to the destination, renames into place, then removes the source.

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

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

// besides returns a new name in the same directory, so that a rename is atomic.
func besides(path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".%.64s.%s", filepath.Base(path), rand.Text()[:12]))
}

// copyTree follows no link, and opens each directory by descriptor, since owners may replace directories meanwhile.
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
		if err := os.Symlink(target, destination); err != nil {
			return err
		}
		return keepOwner(info, func(uid, gid int) error { return os.Lchown(destination, uid, gid) })
	case mode.IsRegular():
		return copyFile(source, destination)
	case mode.IsDir():
		return copyDirectory(ctx, source, destination)
	}
	return failure.New(failure.FailedPrecondition, "'%s' is neither file, directory nor link and cannot move to another file system", source)
}

// keepOwner gives a copy the owner of its source, as after a rename, if envd has root's rights.
func keepOwner(info fs.FileInfo, give func(uid, gid int) error) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && unix.Geteuid() == 0 {
		return give(int(stat.Uid), int(stat.Gid))
	}
	return nil
}

func copyDirectory(ctx context.Context, source, destination string) error {
	from, err := openDirectory(source, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	children, err := from.ReadDir(-1)
	if err != nil {
		return err
	}
	if err := os.Mkdir(destination, 0o700); err != nil {
		return err
	}
	to, err := openDirectory(destination, unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer to.Close()
	for _, child := range children {
		if err := copyTree(ctx, filepath.Join(from.Name(), child.Name()), filepath.Join(to.Name(), child.Name())); err != nil {
			return err
		}
	}
	return finish(to, info)
}

// finish gives a copy its source's owner, mode and time.
func finish(copied *os.File, info fs.FileInfo) error {
	if err := keepOwner(info, copied.Chown); err != nil {
		return err
	}
	if err := copied.Chmod(info.Mode().Perm()); err != nil {
		return err
	}
	return os.Chtimes(descriptorPath(copied), info.ModTime(), info.ModTime())
}

func copyFile(source, destination string) error {
	in, err := os.OpenFile(source, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(destination, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if metadata := readMetadata(descriptorPath(in)); err == nil && len(metadata) > 0 {
		err = replaceMetadata(int(out.Fd()), metadata)
	}
	if err == nil {
		err = finish(out, info)
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

func descriptorPath(file *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", file.Fd()) }
