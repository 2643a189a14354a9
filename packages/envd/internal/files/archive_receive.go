package files

// POST /files/tree: an archive becomes a file or a directory with its contents, completely or not at all.
//
//	archive ──▶ .svc-copy-XXXX/tree, next to the target, or in it if it is a directory ──▶ renames into place
//
// The staging folder is removed at the end of the request, whatever its result. `check=true` only reports the conflicts of a plan; with `content=true` the body
// is the content of one file instead of an archive.

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const stagedTree = "tree"

// received answers both a check and an upload; if there are conflicts, nothing was changed.
type received struct {
	// Standing is the kind of the target itself: file, directory, link, special, or empty.
	Standing  string     `json:"standing"`
	Conflicts []conflict `json:"conflicts"`
	// WithoutAttributes counts files whose attributes this file system did not accept.
	WithoutAttributes int `json:"withoutAttributes"`
}

func (s *Service) receiveTree(w http.ResponseWriter, r *http.Request) {
	answer, err := s.received(r)
	if err != nil {
		failure.Write(w, err)
		return
	}
	body, _ := json.Marshal(answer)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (s *Service) received(r *http.Request) (*received, error) {
	query := r.URL.Query()
	who, target, err := s.callerAt(r.Context(), query.Get("path"))
	if err != nil {
		return nil, err
	}
	force := query.Get("force") == "true"
	if query.Get("check") == "true" {
		planned, err := readPlan(r.Body)
		if err != nil {
			return nil, err
		}
		answer, err := who.inTheWay(target, planned.root, force)
		return answer, failure.About(err, "cannot look at '%s' as user '%s'", target, who.Name)
	}
	stage, err := who.openStage(target)
	if err != nil {
		return nil, failure.About(err, "cannot write to '%s' as user '%s'", target, who.Name)
	}
	defer stage.remove()
	var root *node
	if query.Get("content") == "true" {
		root, err = stage.unpackOne(r.Body)
	} else {
		root, err = stage.unpack(r.Context(), r.Body)
	}
	if err != nil {
		return nil, failure.About(err, "cannot write below '%s'", target)
	}
	answer, err := who.inTheWay(target, root, force)
	if err == nil && len(answer.Conflicts) == 0 {
		answer.WithoutAttributes = stage.withoutAttributes
		err = who.inParent(target, 0, func(dir int, name string) error { return stage.move(stage.fd, stagedTree, dir, name, root, force) })
	}
	return answer, failure.About(err, "cannot write '%s' as user '%s'", target, who.Name)
}

// inTheWay compares a tree with its target. If a parent directory is missing, there are no conflicts.
func (c caller) inTheWay(target string, root *node, force bool) (*received, error) {
	answer := &received{}
	err := c.inParent(target, 0, func(dir int, name string) (err error) {
		found := conflicts{force: force}
		if answer.Standing, err = standing(dir, name); err == nil && root != nil {
			err = found.look(dir, name, target, root)
		}
		answer.Conflicts = found.found
		return err
	})
	if os.IsNotExist(err) {
		err = nil
	}
	if answer.Conflicts == nil {
		answer.Conflicts = []conflict{}
	}
	return answer, err
}

// inParent runs act on the directory that contains the path's last part, with the rights that `at` uses.
func (c caller) inParent(path string, how int, act func(dir int, name string) error) error {
	return c.at(path, how, func(p place) error {
		dir, err := unix.Open(filepath.Dir(p.path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		return act(dir, filepath.Base(p.path))
	})
}
