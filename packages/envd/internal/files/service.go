package files

// The file system service: its routes, and the calls that look.

import (
	"context"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"svc/envd/internal/account"
	"svc/envd/internal/connect"
	"svc/envd/internal/failure"
)

// One answer is built in memory.
const maxListedEntries = 100_000

// Service answers /filesystem.Filesystem/… and /files.
type Service struct{ watchers *watchers }

func NewService() *Service { return &Service{watchers: newWatchers()} }

// Routes puts every call on the mux.
func (s *Service) Routes(mux *http.ServeMux) {
	for name, handler := range map[string]http.Handler{
		"Stat":             connect.Unary(s.stat),
		"MakeDir":          connect.Unary(s.makeDir),
		"Move":             connect.Unary(s.move),
		"ListDir":          connect.Unary(s.listDir),
		"Remove":           connect.Unary(s.remove),
		"WatchDir":         connect.ServerStream(s.watchDir),
		"CreateWatcher":    connect.Unary(s.createWatcher),
		"GetWatcherEvents": connect.Unary(s.getWatcherEvents),
		"RemoveWatcher":    connect.Unary(s.removeWatcher),
	} {
		mux.Handle("/filesystem.Filesystem/"+name, handler)
	}
	mux.HandleFunc("GET /files", s.download)
	mux.HandleFunc("POST /files", s.upload)
	mux.HandleFunc("POST /files/compose", s.compose)
}

// who finds the user and makes the path absolute.
func who(ctx context.Context, path string) (account.Account, string, error) {
	user, err := account.Of(ctx)
	if err != nil {
		return user, "", err
	}
	path, err = user.Resolve(path)
	return user, path, err
}

func (s *Service) stat(ctx context.Context, request *pathRequest) (*entryResponse, error) {
	user, path, err := who(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	return entryAt(user, path)
}

func entryAt(user account.Account, path string) (*entryResponse, error) {
	names := account.ReadNames()
	var entry *Entry
	err := user.Do(func() (err error) {
		entry, err = describe(path, names)
		return err
	})
	return &entryResponse{entry}, missing(err, path, user)
}

// missing words the errors that every call shares.
func missing(err error, path string, user account.Account) error {
	if failed := failure.About(err, "path '%s' as user '%s'", path, user.Name); failed != nil {
		f := failure.Of(failed)
		if f.Code == failure.NotFound && os.IsNotExist(err) {
			f = failure.New(failure.NotFound, "path '%s' does not exist", path)
		}
		return f
	}
	return nil
}

func (s *Service) listDir(ctx context.Context, request *listRequest) (*listResponse, error) {
	user, path, err := who(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	response := &listResponse{}
	names := account.ReadNames()
	err = user.Do(func() error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return failure.New(failure.InvalidArgument, "path is not a directory: %s", path)
		}
		return response.add(ctx, path, max(int(request.Depth), 1), names)
	})
	if err != nil {
		return nil, missing(err, path, user)
	}
	return response, nil
}

// add lists one directory and, within depth, those below it; links inside are shown, not followed.
func (l *listResponse) add(ctx context.Context, dir string, depth int, names account.Names) error {
	children, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, child := range children {
		if len(l.Entries) >= maxListedEntries {
			return failure.New(failure.ResourceExhausted, "more than %d entries: list a smaller depth", maxListedEntries)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := child.Info()
		if err != nil {
			continue // gone since
		}
		path := filepath.Join(dir, child.Name())
		l.Entries = append(l.Entries, describeInfo(path, info, names))
		if depth > 1 && info.Mode()&fs.ModeSymlink == 0 && info.IsDir() {
			if err := l.add(ctx, path, depth-1, names); err != nil && !os.IsPermission(err) && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}
