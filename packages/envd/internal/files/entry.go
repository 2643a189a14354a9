package files

// Descriptions of paths; the calls here use the rights of the current thread.

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
)

func (c caller) describe(p place, names account.Names) (*Entry, error) {
	info, err := os.Lstat(p.path)
	if err != nil {
		return nil, err
	}
	return c.describeInfo(p, info, names), nil
}

func (c caller) describeInfo(p place, info fs.FileInfo, names account.Names) *Entry {
	entry := &Entry{
		Name:         filepath.Base(p.shown),
		Path:         p.shown,
		Type:         typeOf(info.Mode()),
		Size:         wireInt64(info.Size()),
		Mode:         uint32(info.Mode().Perm()),
		Permissions:  info.Mode().String(),
		ModifiedTime: wireTime(info.ModTime()),
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		entry.Owner, entry.Group = names.User(stat.Uid), names.Group(stat.Gid)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		c.describeTarget(entry, p)
	}
	if entry.Type == typeFile {
		entry.Metadata = readMetadata(p.path)
	}
	return entry
}

// describeTarget shows a link as its target, or as a symlink if the target does not exist or these rights cannot see it.
func (c caller) describeTarget(entry *Entry, p place) {
	target, info, err := c.follow(p)
	if err != nil {
		if target, err = os.Readlink(p.path); err != nil {
			return
		}
	}
	entry.SymlinkTarget = &target
	if info != nil {
		entry.Type, entry.Size, entry.Mode = typeOf(info.Mode()), wireInt64(info.Size()), uint32(info.Mode().Perm())
	}
}

func (c caller) follow(p place) (string, fs.FileInfo, error) {
	if !p.lent {
		target, err := filepath.EvalSymlinks(p.shown)
		if err != nil {
			return "", nil, err
		}
		info, _ := os.Stat(p.shown)
		return target, info, nil
	}
	dir, name, err := c.walk(p.shown, followLast)
	if err != nil {
		return "", nil, err
	}
	defer unix.Close(dir)
	end := below(dir, name, p.shown)
	info, err := end.stat()
	if err != nil {
		return "", nil, err
	}
	parent, err := os.Readlink(filepath.Dir(end.path))
	return filepath.Join(parent, name), info, err
}

func typeOf(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return typeFile
	case mode.IsDir():
		return typeDirectory
	case mode&fs.ModeSymlink != 0:
		return typeSymlink
	}
	return "" // a socket, pipe or device: FILE_TYPE_UNSPECIFIED
}
