package files

// The tree of an upload: its plan, and the existing entries that conflict with it.

import (
	"archive/tar"
	"bufio"
	"bytes"
	"io"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

// node is one entry of a tree; the first one is the root, whatever name it has.
type node struct {
	name       string
	kind       byte // kindFile (hard links too), kindLink, kindDirectory
	mode       uint32
	modified   time.Time
	attributes map[string]string
	children   []*node
	moved      bool
}

// plannedTree grows entry by entry; each directory precedes its entries.
type plannedTree struct {
	root    *node
	byPath  map[string]*node
	entries int
}

func newPlannedTree() *plannedTree { return &plannedTree{byPath: map[string]*node{}} }

// add takes a name as an archive spells it, relative to the root, and returns its clean form.
func (t *plannedTree) add(name string, kind byte) (*node, string, error) {
	if t.entries++; t.entries > maxTreeEntries {
		return nil, "", failure.New(failure.ResourceExhausted, "more than %d files and directories", maxTreeEntries)
	}
	clean := path.Clean(name)
	added := &node{name: path.Base(clean), kind: kind}
	if t.root == nil {
		// The root that is a single file has the name of its target.
		if kind == kindDirectory && clean != "." {
			return nil, "", failure.New(failure.InvalidArgument, "the archive begins with '%s' and not with its root", name)
		}
		t.root = added
		t.byPath["."] = added
		return added, ".", nil
	}
	if path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") || strings.Contains(clean, "\x00") {
		return nil, "", failure.New(failure.InvalidArgument, "the archive's entry '%s' is not below its root, or there twice", name)
	}
	if strings.Count(clean, "/") >= maxTreeDepth {
		return nil, "", failure.New(failure.ResourceExhausted, "directories nest deeper than %d", maxTreeDepth)
	}
	parent := t.byPath[path.Dir(clean)]
	if parent == nil || parent.kind != kindDirectory || t.byPath[clean] != nil {
		return nil, "", failure.New(failure.InvalidArgument, "the archive's entry '%s' has no directory before it, or is there twice", name)
	}
	parent.children = append(parent.children, added)
	t.byPath[clean] = added
	return added, clean, nil
}

// readPlan parses entries ended by NUL: the kind's letter (f, l, d), then the name.
func readPlan(body io.Reader) (*plannedTree, error) {
	planned := newPlannedTree()
	scanner := bufio.NewScanner(body)
	scanner.Buffer(nil, 64<<10)
	scanner.Split(untilNUL)
	kinds := map[byte]byte{'f': kindFile, 'l': kindLink, 'd': kindDirectory}
	for scanner.Scan() {
		line := scanner.Text()
		if line == "" || kinds[line[0]] == 0 {
			return nil, failure.New(failure.InvalidArgument, "the plan has an entry of no known kind: '%.40s'", line)
		}
		if _, _, err := planned.add(line[1:], kinds[line[0]]); err != nil {
			return nil, err
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, failure.New(failure.InvalidArgument, "the plan broke off: %w", err)
	}
	return planned, nil
}

func untilNUL(data []byte, atEOF bool) (int, []byte, error) {
	if at := bytes.IndexByte(data, 0); at >= 0 {
		return at + 1, data[:at], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// note stores the metadata of an archive's header.
func (n *node) note(header *tar.Header) {
	n.mode = uint32(header.Mode) & 0o777
	n.modified = header.ModTime
	for key, value := range header.PAXRecords {
		if name, found := strings.CutPrefix(key, "SCHILY.xattr."); found && strings.HasPrefix(name, "user.") {
			if n.attributes == nil {
				n.attributes = map[string]string{}
			}
			n.attributes[name] = value
		}
	}
}

// standing returns the kind of an existing entry, in the words of the response; empty if there is none.
func standing(dir int, name string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstatat(dir, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if err == unix.ENOENT {
			return "", nil
		}
		return "", err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file", nil
	case unix.S_IFDIR:
		return "directory", nil
	case unix.S_IFLNK:
		return "link", nil
	}
	return "special", nil
}

var kindNames = map[byte]string{kindFile: "file", kindLink: "link", kindDirectory: "directory"}

// isFree reports whether an entry can be placed: directories merge; with force a file replaces a file and a link a link, and neither is ever followed.
func (n *node) isFree(there string, force bool) bool {
	return there == "" || (there == kindNames[n.kind] && (n.kind == kindDirectory || force))
}

// maxConflicts limits the conflicts in an answer; the client shows fewer.
const maxConflicts = 100

type conflict struct {
	Path     string `json:"path"`
	Standing string `json:"standing"`
}

type conflicts struct {
	found []conflict
	force bool
}

// look compares a tree with the existing entries at the target; it descends only into directories of the plan.
func (c *conflicts) look(dir int, name, shown string, n *node) error {
	there, err := standing(dir, name)
	if err != nil {
		return err
	}
	if !n.isFree(there, c.force) && len(c.found) < maxConflicts {
		c.found = append(c.found, conflict{shown, there})
		return nil
	}
	if there != "directory" || n.kind != kindDirectory || len(n.children) == 0 {
		return nil
	}
	below, err := openBelow(dir, name, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(below)
	for _, child := range n.children {
		if err := c.look(below, child.name, path.Join(shown, child.name), child); err != nil {
			return err
		}
	}
	return nil
}

// openBelow opens a directory by its name in another one, and never through a link.
func openBelow(dir int, name string, flags int) (int, error) {
	return unix.Openat(dir, name, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
