package files

// POST /files/compose: joins several files into one, in order, and removes them.

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/connect"
	"svc/envd/internal/failure"
)

const (
	maxComposeSources = 10_000
	maxComposeBytes   = 4 << 20 // limit of the request
)

type composeRequest struct {
	SourcePaths []string `json:"source_paths"`
	Destination string   `json:"destination"`
	Username    string   `json:"username"`
}

func (s *Service) compose(w http.ResponseWriter, r *http.Request) {
	entry, err := s.composed(r)
	if err != nil {
		failure.Write(w, err)
		return
	}
	body, _ := json.Marshal(entry)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (s *Service) composed(r *http.Request) (*Entry, error) {
	var request composeRequest
	body, err := io.ReadAll(io.LimitReader(r.Body, maxComposeBytes))
	if err != nil {
		return nil, failure.New(failure.InvalidArgument, "the request's body broke off: %w", err)
	}
	if err := connect.Decode(body, &request); err != nil {
		return nil, err
	}
	if len(request.SourcePaths) == 0 || len(request.SourcePaths) > maxComposeSources || request.Destination == "" {
		return nil, failure.New(failure.InvalidArgument, "compose needs a destination and 1 to %d source_paths", maxComposeSources)
	}
	ctx := r.Context()
	if request.Username != "" {
		ctx = account.WithName(ctx, request.Username)
	}
	who, destination, err := s.callerAt(ctx, request.Destination)
	if err != nil {
		return nil, err
	}
	sources := make([]string, len(request.SourcePaths))
	for i, source := range request.SourcePaths {
		if sources[i], err = who.Resolve(source); err != nil {
			return nil, err
		}
	}
	if err := join(who, sources, destination); err != nil {
		return nil, err
	}
	response, err := entryAt(who, destination)
	if err != nil {
		return nil, err
	}
	return response.Entry, nil
}

// join writes next to the destination, so that a source may be the destination and a failure changes neither.
func join(who caller, sources []string, destination string) error {
	beside := besides(destination)
	out, err := openFile(who, beside, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return err
	}
	defer out.Close()
	err = appendAll(who, out, sources)
	if err == nil {
		err = out.Close()
	}
	if err == nil {
		err = who.at(destination, 0, func(p place) error {
			if info, err := os.Stat(p.path); err == nil && info.IsDir() {
				return failure.New(failure.InvalidArgument, "path is a directory: %s", destination)
			}
			return os.Rename(filepath.Join(filepath.Dir(p.path), filepath.Base(beside)), p.path)
		})
	}
	if err != nil {
		_ = removeFile(who, beside)
		return failure.About(err, "cannot compose '%s' as user '%s'", destination, who.Name)
	}
	for _, source := range sources {
		if source == destination {
			continue
		}
		if err := removeFile(who, source); err != nil && !os.IsNotExist(err) {
			return failure.About(err, "'%s' is composed, but '%s' cannot be removed", destination, source)
		}
	}
	return nil
}

func removeFile(who caller, path string) error {
	return who.at(path, 0, func(p place) error { return os.Remove(p.path) })
}

func appendAll(who caller, out *os.File, sources []string) error {
	for _, source := range sources {
		in, err := openFile(who, source, unix.O_RDONLY)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		_ = in.Close()
		if err != nil {
			return failure.About(err, "cannot append '%s'", source)
		}
	}
	return nil
}
