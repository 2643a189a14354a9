package files

// Reads the kernel's queue and names the events.

import (
	"bytes"
	"encoding/binary"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const queueReadBytes = 16 << 10

// run emits events until the tree is closed (nil) or its watches are no longer reliable.
func (t *tree) run() error {
	buffer := make([]byte, queueReadBytes)
	for {
		n, err := t.inotify.Read(buffer)
		if err != nil {
			return nil // closed
		}
		for rest := buffer[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd := int32(binary.NativeEndian.Uint32(rest))
			mask := binary.NativeEndian.Uint32(rest[4:])
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			cookie := binary.NativeEndian.Uint32(rest[8:])
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:size], []byte{0})
			rest = rest[size:]
			t.settleMove(mask, cookie)
			if more, err := t.happened(wd, mask, cookie, string(name)); err != nil || !more {
				return err
			}
		}
		if t.moving != nil && t.queueEmpty() {
			t.settleMove(0, 0)
		}
		if len(t.seen) > 0 && t.queueEmpty() {
			clear(t.seen)
		}
	}
}

// settleMove drops the watches of a directory that left the tree, which is the case if the other half of its move is not the next event.
func (t *tree) settleMove(mask, cookie uint32) {
	if t.moving != nil && (mask&unix.IN_MOVED_TO == 0 || cookie != t.moving.cookie) {
		t.forget(t.moving.path)
		t.moving = nil
	}
}

// renamed keeps the watches of a directory that moved inside the tree, under its new name.
func (t *tree) renamed(from, to string) {
	t.moving = nil
	for wd, name := range t.names {
		if name == from || strings.HasPrefix(name, from+"/") {
			t.names[wd] = to + name[len(from):]
		}
	}
}

func (t *tree) queueEmpty() bool {
	waiting := 0
	err := t.control(func(fd int) (err error) {
		waiting, err = unix.IoctlGetInt(fd, unix.TIOCINQ)
		return err
	})
	return err != nil || waiting == 0
}

func (t *tree) happened(wd int32, mask, cookie uint32, name string) (bool, error) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return false, failure.New(failure.ResourceExhausted, "events of '%s' were lost: they came faster than they were taken", t.root)
	}
	dir, known := t.names[wd]
	if mask&unix.IN_IGNORED != 0 {
		delete(t.names, wd)
		return true, nil
	}
	if !known {
		return true, nil
	}
	if name == "" {
		return t.happenedToSelf(dir, mask), nil
	}
	path := filepath.Join(dir, name)
	isDir := mask&unix.IN_ISDIR != 0
	switch {
	case mask&unix.IN_CREATE != 0:
		if t.seen[path] {
			delete(t.seen, path)
			return true, nil
		}
		return t.appeared(path, isDir, true)
	case mask&unix.IN_MOVED_TO != 0:
		if moved := t.moving; moved != nil {
			t.moving = nil
			if t.recursive && !t.watched(moved.path) {
				return t.appeared(path, isDir, true) // it was renamed before it was watched, so its entries were not reported yet
			}
			t.renamed(moved.path, path)
			return t.tell(path, eventCreate), nil
		}
		return t.appeared(path, isDir, false)
	case mask&unix.IN_MOVED_FROM != 0:
		delete(t.seen, path)
		if isDir {
			t.moving = &move{cookie, path}
		}
		return t.tell(path, eventRename), nil
	case mask&unix.IN_DELETE != 0:
		delete(t.seen, path)
		return t.tell(path, eventRemove), nil
	case mask&unix.IN_MODIFY != 0:
		return t.tell(path, eventWrite), nil
	case mask&unix.IN_ATTRIB != 0:
		return t.tell(path, eventChmod), nil
	}
	return true, nil
}

func (t *tree) watched(path string) bool {
	for _, name := range t.names {
		if name == path {
			return true
		}
	}
	return false
}

func (t *tree) appeared(path string, isDir, isNew bool) (bool, error) {
	if !t.tell(path, eventCreate) {
		return false, nil
	}
	if isDir && t.recursive {
		return true, t.enter(path, isNew)
	}
	return true, nil
}

// happenedToSelf handles events of watched directories themselves: those below the root are reported by their parent's watch, only the root reports itself.
func (t *tree) happenedToSelf(dir string, mask uint32) bool {
	switch {
	case dir != "":
		return true
	case mask&unix.IN_DELETE_SELF != 0:
		return t.tell(".", eventRemove)
	case mask&unix.IN_MOVE_SELF != 0:
		return t.tell(".", eventRename)
	case mask&unix.IN_ATTRIB != 0:
		return t.tell(".", eventChmod)
	}
	return true
}
