package files

// Moves a received tree into place by renames; both sides are descriptors, so that a link that appears meanwhile is not followed.

import (
	"os"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

// move renames one entry with everything below it. Entries that have already moved are skipped if the call is repeated with envd's rights.
func (s *stage) move(from int, fromName string, to int, name string, n *node, force bool) error {
	if n.moved {
		return nil
	}
	there, err := standing(to, name)
	if err != nil {
		return err
	}
	if !n.isFree(there, force) {
		return failure.New(failure.AlreadyExists, "a %s was made at '%s' meanwhile", there, name)
	}
	if n.kind == kindDirectory {
		flags := unix.O_RDONLY
		source, err := openBelow(from, fromName, flags)
		if err != nil {
			return err
		}
		defer unix.Close(source)
		if there == "directory" {
			return s.merge(source, to, name, n, force)
		}
		if err := renameInto(from, fromName, to, name); err != nil {
			return err
		}
		n.moved = true
		return s.finishBelow(source, n)
	}
	if err := renameInto(from, fromName, to, name); err != nil {
		return err
	}
	n.moved = true
	return nil
}

func renameInto(from int, fromName string, to int, name string) error {
	err := unix.Renameat(from, fromName, to, name)
	if err == unix.EXDEV {
		return failure.New(failure.FailedPrecondition, "'%s' lies on a file system of its own below the target: copy to it by itself", name)
	}
	return err
}

func (s *stage) merge(source, to int, name string, n *node, force bool) error {
	target, err := openBelow(to, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	for _, child := range n.children {
		if err := s.move(source, child.name, target, child.name, child, force); err != nil {
			return err
		}
	}
	n.moved = true
	return nil
}

// finishBelow sets modes and times of directories once nothing more is created in them, the innermost first.
func (s *stage) finishBelow(dir int, n *node) error {
	for _, child := range n.children {
		if child.kind != kindDirectory {
			continue
		}
		below, err := openBelow(dir, child.name, unix.O_RDONLY)
		if err != nil {
			return err
		}
		err = s.finishBelow(below, child)
		_ = unix.Close(below)
		if err != nil {
			return err
		}
	}
	copied, err := unix.FcntlInt(uintptr(dir), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(copied), n.name)
	defer file.Close()
	return s.finish(file, n)
}
