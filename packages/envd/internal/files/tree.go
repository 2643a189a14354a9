package files

// A watched directory, with those below it when recursive: reads inotify events and emits named events.
//
// It is our own instead of a library's for two reasons. Each watch is put on a directory that was opened with the user's rights, through its descriptor, so
// that no symlink race can watch what the user may not read; and a directory that appears in a recursive watch is watched together with everything that was
// created in it before.

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const (
	maxWatchedDirectories = 8192
	watchMask             = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_DELETE | unix.IN_DELETE_SELF | unix.IN_MOVED_FROM |
		unix.IN_MOVED_TO | unix.IN_MOVE_SELF | unix.IN_ATTRIB
)

type tree struct {
	inotify   *os.File
	who       caller
	root      string
	recursive bool
	entries   bool

	names map[int32]string // watch → directory relative to root, "" the root itself
	// seen contains what a scan of a new directory has already reported, until the kernel's queue is empty.
	seen map[string]bool
	// moving is a directory that was moved away; if it stays in the tree, the next event has its new name.
	moving *move
	emit   func(event) bool // returns false if no further events are wanted
}

type move struct {
	cookie uint32
	path   string
}

func openTree(who caller, request *watchRequest) (*tree, error) {
	root, err := who.Resolve(request.Path)
	if err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, failure.New(failure.ResourceExhausted, "the kernel gives no more watchers: %w", err)
	}
	t := &tree{
		inotify: os.NewFile(uintptr(fd), "inotify"), who: who, root: root, recursive: request.Recursive,
		entries: request.IncludeEntry || request.IncludeEntrySnake,
		names:   map[int32]string{}, seen: map[string]bool{},
	}
	if err := t.watchRoot(request.AllowNetworkMounts || request.AllowNetworkMountSnake); err != nil {
		_ = t.inotify.Close()
		return nil, err
	}
	return t, nil
}

func (t *tree) watchRoot(networkToo bool) error {
	dir, err := t.open("")
	if errors.Is(err, unix.ENOTDIR) {
		return failure.New(failure.InvalidArgument, "path is not a directory: %s", t.root)
	}
	if err != nil {
		return missing(err, t.root, t.who)
	}
	defer dir.Close()
	if !networkToo && onNetwork(int(dir.Fd())) {
		return failure.New(failure.InvalidArgument,
			"'%s' is on a network file system, whose changes made elsewhere stay unseen: set allow_network_mounts to watch it all the same", t.root)
	}
	if err := t.watch(dir, ""); err != nil {
		return err
	}
	if t.recursive {
		return t.join(dir, "", false)
	}
	return nil
}

// open opens a directory of the tree; below the root no link is followed.
func (t *tree) open(name string) (dir *os.File, err error) {
	how, flags := followLast, 0
	if name != "" {
		how, flags = 0, unix.O_NOFOLLOW
	}
	err = t.who.at(filepath.Join(t.root, name), how, func(p place) error {
		dir, err = openDirectory(p.path, flags|p.flags())
		return err
	})
	return dir, err
}

func (t *tree) watch(dir *os.File, name string) error {
	if len(t.names) >= maxWatchedDirectories {
		return failure.New(failure.ResourceExhausted, "'%s' has more than %d directories to watch", t.root, maxWatchedDirectories)
	}
	var wd int
	err := t.control(func(fd int) (err error) {
		wd, err = unix.InotifyAddWatch(fd, dir.Name(), watchMask)
		return err
	})
	if err != nil {
		return failure.New(failure.ResourceExhausted, "cannot watch '%s': %w", filepath.Join(t.root, name), err)
	}
	t.names[int32(wd)] = name
	return nil
}

// join watches every directory below name; entries that it finds are reported as created if the directory itself is new.
func (t *tree) join(dir *os.File, name string, isNew bool) error {
	children, err := dir.ReadDir(-1)
	if err != nil {
		return nil // it no longer exists, so there is nothing to watch
	}
	for _, child := range children {
		below := filepath.Join(name, child.Name())
		if isNew {
			t.seen[below] = true
			if !t.tell(below, eventCreate) {
				return nil
			}
		}
		if child.IsDir() {
			if err := t.enter(below, isNew); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tree) enter(name string, isNew bool) error {
	dir, err := t.open(name)
	if err != nil {
		return nil // it no longer exists, or these rights cannot read it
	}
	defer dir.Close()
	if err := t.watch(dir, name); err != nil {
		return err
	}
	return t.join(dir, name, isNew)
}

// forget drops the watches of a directory that moved away, and of everything below it.
func (t *tree) forget(name string) {
	for wd, other := range t.names {
		if other == name || strings.HasPrefix(other, name+"/") {
			delete(t.names, wd)
			_ = t.control(func(fd int) error {
				_, err := unix.InotifyRmWatch(fd, uint32(wd))
				return err
			})
		}
	}
}

func (t *tree) tell(name, kind string) bool {
	told := event{Name: name, Type: kind}
	if t.entries && (kind == eventCreate || kind == eventWrite || kind == eventChmod) {
		if answer, err := entryAt(t.who, filepath.Join(t.root, name)); err == nil {
			told.Entry = answer.Entry
		}
	}
	return t.emit(told)
}

// control keeps the descriptor open during the call, since a closed number may already belong to another watcher.
func (t *tree) control(act func(fd int) error) error {
	raw, err := t.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = act(int(fd)) })
	return errors.Join(err, failed)
}

func (t *tree) close() { _ = t.inotify.Close() }

// 9p is not in this list on purpose: the root file system of some sandboxes reports itself as 9p.
func onNetwork(fd int) bool {
	const cifs, smb2 = 0xFF534D42, 0xFE534D42
	var stat unix.Statfs_t
	if err := unix.Fstatfs(fd, &stat); err != nil {
		return false
	}
	switch uint32(stat.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, cifs, smb2, unix.FUSE_SUPER_MAGIC, unix.CEPH_SUPER_MAGIC:
		return true
	}
	return false
}
