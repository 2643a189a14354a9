// Package account resolves the user that a request acts for, and performs actions with exactly that user's rights.
package account

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"svc/envd/internal/failure"
)

// A file larger than this is not accepted as a user database.
const maxDatabaseBytes = 4 << 20

// Account is one user, as the sandbox's files currently describe it.
type Account struct {
	Name   string
	UID    int
	GID    int
	Groups []uint32
	Home   string
	Shell  string
}

// Lookup reads /etc/passwd and /etc/group at each call, since users can be added and removed inside a sandbox.
func Lookup(name string) (Account, error) {
	found, err := find("/etc/passwd", "/etc/group", name)
	if err != nil {
		return Account{}, err
	}
	if own := os.Geteuid(); own != 0 && found.UID != own {
		return Account{}, failure.New(failure.Unauthenticated,
			"envd runs as uid %d and cannot act for user '%s' (uid %d)", own, name, found.UID)
	}
	return found, nil
}

// find takes NAME, or NAME:GROUP as images do, each a name or a number; a number needs no entry in the files.
func find(passwd, group, whole string) (Account, error) {
	name, groupName, hasGroup := strings.Cut(whole, ":")
	if name == "" || (hasGroup && groupName == "") || strings.ContainsAny(whole, "\n\x00") || strings.Contains(groupName, ":") {
		return Account{}, failure.New(failure.Unauthenticated, "invalid username: '%s'", whole)
	}
	found := Account{UID: -1}
	err := eachRecord(passwd, 7, func(field []string) bool {
		uid, uidErr := strconv.Atoi(field[2])
		gid, gidErr := strconv.Atoi(field[3])
		if uidErr != nil || gidErr != nil || uid < 0 || gid < 0 || (field[0] != name && field[2] != name) {
			return true
		}
		found = Account{Name: field[0], UID: uid, GID: gid, Home: field[5], Shell: field[6]}
		return field[0] != name // A name takes precedence over an equal number.
	})
	if err != nil {
		return Account{}, failure.New(failure.Internal, "cannot read the sandbox's users: %w", err)
	}
	if found.UID < 0 {
		uid, ok := number(name)
		if !ok {
			return Account{}, failure.New(failure.Unauthenticated, "invalid username: '%s'", whole)
		}
		found = Account{Name: name, UID: uid, Home: "/", Shell: "/bin/sh"}
	}
	if !filepath.IsAbs(found.Home) {
		found.Home = "/"
	}
	if hasGroup {
		// The group replaces all supplementary groups, as in container runtimes.
		found.GID, err = findGroup(group, groupName)
		found.Groups = []uint32{uint32(found.GID)}
		return found, err
	}
	found.Groups = []uint32{uint32(found.GID)}
	err = eachRecord(group, 4, func(field []string) bool {
		gid, err := strconv.ParseUint(field[2], 10, 32)
		if err != nil || int(gid) == found.GID {
			return true
		}
		for member := range strings.SplitSeq(field[3], ",") {
			if member == found.Name {
				found.Groups = append(found.Groups, uint32(gid))
			}
		}
		return true
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Account{}, failure.New(failure.Internal, "cannot read the sandbox's groups: %w", err)
	}
	return found, nil
}

func findGroup(group, name string) (int, error) {
	gid, ok := -1, false
	err := eachRecord(group, 4, func(field []string) bool {
		if found, isNumber := number(field[2]); isNumber && field[0] == name {
			gid, ok = found, true
		}
		return !ok
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return -1, failure.New(failure.Internal, "cannot read the sandbox's groups: %w", err)
	}
	if !ok {
		gid, ok = number(name)
	}
	if !ok {
		return -1, failure.New(failure.Unauthenticated, "invalid group: '%s'", name)
	}
	return gid, nil
}

// number parses an id; the largest value means "no id" to the kernel.
func number(text string) (int, bool) {
	id, err := strconv.ParseUint(text, 10, 32)
	return int(id), err == nil && id < 1<<32-1
}

// Names maps ids to names, for listings: the files are read once per answer.
type Names struct{ users, groups map[int]string }

// ReadNames reads both databases; ids that are missing there are shown as numbers.
func ReadNames() Names {
	names := Names{users: map[int]string{}, groups: map[int]string{}}
	collect := func(path string, fields int, into map[int]string) {
		_ = eachRecord(path, fields, func(field []string) bool {
			if id, err := strconv.Atoi(field[2]); err == nil {
				if _, taken := into[id]; !taken {
					into[id] = field[0]
				}
			}
			return true
		})
	}
	collect("/etc/passwd", 7, names.users)
	collect("/etc/group", 4, names.groups)
	return names
}

func (n Names) User(uid uint32) string  { return orNumber(n.users, uid) }
func (n Names) Group(gid uint32) string { return orNumber(n.groups, gid) }

func orNumber(names map[int]string, id uint32) string {
	if name, ok := names[int(id)]; ok {
		return name
	}
	return strconv.FormatUint(uint64(id), 10)
}

// eachRecord passes each line with the wanted number of fields to take, until it returns false.
func eachRecord(path string, fields int, take func([]string) bool) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxDatabaseBytes))
	lines.Buffer(nil, maxDatabaseBytes)
	for lines.Scan() {
		field := strings.Split(lines.Text(), ":")
		if len(field) == fields && !take(field) {
			return nil
		}
	}
	return lines.Err()
}

// Resolve makes a client's path absolute: `~` and relative paths start at the user's home.
func (a Account) Resolve(path string) (string, error) {
	switch {
	case strings.ContainsRune(path, 0):
		return "", failure.New(failure.InvalidArgument, "a path cannot hold a NUL byte")
	case path == "~" || strings.HasPrefix(path, "~/"):
		return filepath.Join(a.Home, path[1:]), nil
	case strings.HasPrefix(path, "~"):
		return "", failure.New(failure.InvalidArgument, "cannot expand '%s': only ~ and ~/ are known, name another user's home in full", path)
	case filepath.IsAbs(path):
		return filepath.Clean(path), nil
	}
	return filepath.Join(a.Home, path), nil
}
