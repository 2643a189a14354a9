package files

// The file system service: its routes, and the call that describes one path.

import (
	"context"
	"net/http"
	"os"

	"svc/envd/internal/account"
	"svc/envd/internal/connect"
	"svc/envd/internal/failure"
)

// Service answers /filesystem.Filesystem/… and /files.
type Service struct {
	watchers *watchers
	strict   func() bool
}

// NewService takes a function that reports, at each call, whether files are reached with the user's rights only.
func NewService(strict func() bool) *Service {
	return &Service{watchers: newWatchers(), strict: strict}
}

// Routes registers every call.
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
	mux.HandleFunc("GET /files/tree", s.sendTree)
	mux.HandleFunc("POST /files/tree", s.receiveTree)
}

func (s *Service) stat(ctx context.Context, request *pathRequest) (*entryResponse, error) {
	who, path, err := s.callerAt(ctx, request.Path)
	if err != nil {
		return nil, err
	}
	return entryAt(who, path)
}

func entryAt(who caller, path string) (*entryResponse, error) {
	names := account.ReadNames()
	var entry *Entry
	err := who.at(path, 0, func(p place) (err error) {
		entry, err = who.describe(p, names)
		return err
	})
	return &entryResponse{entry}, missing(err, path, who)
}

// missing translates the errors that every call shares.
func missing(err error, path string, who caller) error {
	if failed := failure.About(err, "path '%s' as user '%s'", path, who.Name); failed != nil {
		f := failure.Of(failed)
		if f.Code == failure.NotFound && os.IsNotExist(err) {
			f = failure.New(failure.NotFound, "path '%s' does not exist", path)
		}
		return f
	}
	return nil
}
