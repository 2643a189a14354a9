package files

// What a path looks like: the calls here run with the asking user's rights.

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"svc/envd/internal/account"
)

func describe(path string, names account.Names) (*Entry, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	return describeInfo(path, info, names), nil
}

func describeInfo(path string, info fs.FileInfo, names account.Names) *Entry {
	entry := &Entry{
		Name:         filepath.Base(path),
		Path:         path,
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
		describeTarget(entry, path)
	}
	if entry.Type == typeFile {
		entry.Metadata = readMetadata(path)
	}
	return entry
}

// describeTarget: a link shows what it leads to, and stays a symlink when that is nothing.
func describeTarget(entry *Entry, path string) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		if target, err = os.Readlink(path); err != nil {
			return
		}
	}
	entry.SymlinkTarget = &target
	if info, err := os.Stat(path); err == nil {
		entry.Type, entry.Size, entry.Mode = typeOf(info.Mode()), wireInt64(info.Size()), uint32(info.Mode().Perm())
	}
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
