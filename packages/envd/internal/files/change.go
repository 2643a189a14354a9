package files

// The calls that change the tree: make, move, remove.

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

func (s *Service) makeDir(ctx context.Context, request *pathRequest) (*entryResponse, error) {
	user, path, err := who(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	err = user.Do(func() error {
		switch info, err := os.Stat(path); {
		case err == nil && info.IsDir():
			return failure.New(failure.AlreadyExists, "directory already exists: %s", path)
		case err == nil:
			return failure.New(failure.InvalidArgument, "path already exists but it is not a directory: %s", path)
		}
		return os.MkdirAll(path, 0o755) // made with the user's ids, hence the user's own
	})
	if err != nil {
		return nil, failure.About(err, "cannot make directory '%s' as user '%s'", path, user.Name)
	}
	return entryAt(user, path)
}

func (s *Service) move(ctx context.Context, request *moveRequest) (*entryResponse, error) {
	user, source, err := who(ctx, request.Source)
	if err != nil {
		return nil, err
	}
	destination, err := user.Resolve(request.Destination)
	if err != nil {
		return nil, err
	}
	err = user.Do(func() error {
		if _, err := os.Lstat(source); err != nil {
			return missing(err, source, user)
		}
		if err := os.MkdirAll(filepath.Dir(destination), 0o755); err != nil {
			return err
		}
		err := os.Rename(source, destination)
		if errors.Is(err, unix.EXDEV) {
			return moveAcross(ctx, source, destination)
		}
		return err
	})
	if err != nil {
		return nil, failure.About(err, "cannot move '%s' to '%s' as user '%s'", source, destination, user.Name)
	}
	return entryAt(user, destination)
}

func (s *Service) remove(ctx context.Context, request *pathRequest) (*empty, error) {
	user, path, err := who(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	if path == "/" || request.Path == "" {
		return nil, failure.New(failure.InvalidArgument, "refusing to remove '%s'", path)
	}
	err = user.Do(func() error { return os.RemoveAll(path) })
	if err != nil {
		return nil, failure.About(err, "cannot remove '%s' as user '%s'", path, user.Name)
	}
	return &empty{}, nil
}

// parents makes the directories above a file; call it with the user's rights.
func parents(path string, user account.Account) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if errors.Is(err, unix.ENOTDIR) {
		return failure.New(failure.InvalidArgument, "a part of the path '%s' is not a directory", path)
	}
	return failure.About(err, "cannot make the directory of '%s' as user '%s'", path, user.Name)
}
