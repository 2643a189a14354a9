package files

// POST /files: one body or several parts, written directly to their files.

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"svc/envd/internal/failure"
)

const (
	// The memory of one transfer, whatever its size.
	copyBytes = 256 << 10
	maxParts  = 10_000
)

var copyBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, copyBytes) }}

type uploaded struct {
	Path     string            `json:"path"`
	Name     string            `json:"name"`
	Type     string            `json:"type"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

func (s *Service) upload(w http.ResponseWriter, r *http.Request) {
	written, err := s.store(r)
	if err != nil {
		failure.Write(w, err)
		return
	}
	body, _ := json.Marshal(written)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

func (s *Service) store(r *http.Request) ([]uploaded, error) {
	who, err := s.caller(r.Context())
	if err != nil {
		return nil, err
	}
	metadata, err := metadataOf(r.Header)
	if err != nil {
		return nil, err
	}
	body, err := plainBody(r)
	if err != nil {
		return nil, err
	}
	path := r.URL.Query().Get("path")
	kind, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch {
	case kind == "multipart/form-data" && parameters["boundary"] != "":
		// The parser reads in steps of 4 KiB; the larger buffer saves system calls.
		parts := multipart.NewReader(bufio.NewReaderSize(body, copyBytes), parameters["boundary"])
		return storeParts(who, parts, path, metadata)
	case kind == "application/octet-stream":
		if path == "" {
			return nil, failure.New(failure.InvalidArgument, "an application/octet-stream upload needs the path parameter")
		}
		one, err := storeOne(who, path, body, metadata)
		return []uploaded{one}, err
	}
	return nil, failure.New(failure.InvalidArgument,
		"content type '%s' cannot be uploaded: use multipart/form-data or application/octet-stream", r.Header.Get("Content-Type"))
}

func plainBody(r *http.Request) (io.Reader, error) {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return r.Body, nil
	case "gzip":
		body, err := gzip.NewReader(bufio.NewReaderSize(r.Body, copyBytes))
		if err != nil {
			return nil, failure.New(failure.InvalidArgument, "the body is not gzip: %w", err)
		}
		return body, nil
	default:
		return nil, failure.New(failure.InvalidArgument, "content encoding '%s' is unknown: use gzip or none", encoding)
	}
}

func storeParts(who caller, parts *multipart.Reader, path string, metadata map[string]string) ([]uploaded, error) {
	written := []uploaded{}
	seen := map[string]bool{}
	for count := 0; ; count++ {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, failure.New(failure.InvalidArgument, "the multipart body broke off: %w", err)
		}
		if count >= maxParts {
			return nil, failure.New(failure.InvalidArgument, "one upload may have %d parts", maxParts)
		}
		if part.FormName() != "file" {
			continue
		}
		target := path
		if target == "" {
			// Part.FileName would cut the name to its last element.
			_, disposition, _ := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			target = disposition["filename"]
		}
		if target == "" {
			return nil, failure.New(failure.InvalidArgument, "a part has no filename and the request no path parameter")
		}
		if seen[target] {
			return nil, failure.New(failure.InvalidArgument, "two parts of this upload go to the same path '%s'", target)
		}
		seen[target] = true
		one, err := storeOne(who, target, part, metadata)
		if err != nil {
			return nil, err
		}
		written = append(written, one)
	}
	if len(written) == 0 {
		return nil, failure.New(failure.InvalidArgument, "the multipart body has no part named 'file'")
	}
	return written, nil
}

func storeOne(who caller, path string, body io.Reader, metadata map[string]string) (uploaded, error) {
	path, err := who.Resolve(path)
	if err != nil {
		return uploaded{}, err
	}
	file, err := openFile(who, path, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC)
	if err != nil {
		return uploaded{}, err
	}
	defer file.Close()
	if err := replaceMetadata(int(file.Fd()), metadata); err != nil {
		return uploaded{}, err
	}
	if err := pour(file, body); err != nil {
		return uploaded{}, failure.About(err, "cannot write '%s'", path)
	}
	if err := file.Close(); err != nil {
		return uploaded{}, failure.About(err, "cannot write '%s'", path)
	}
	return uploaded{Path: path, Name: filepath.Base(path), Type: "file", Metadata: metadata}, nil
}

// pour copies with one buffer and distinguishes a broken body from a full disk.
func pour(file io.Writer, body io.Reader) error {
	buffer := copyBuffers.Get().(*bufio.Writer)
	defer func() { buffer.Reset(nil); copyBuffers.Put(buffer) }()
	buffer.Reset(file)
	if _, err := buffer.ReadFrom(onlyReader{body}); err != nil {
		var errno unix.Errno
		if errors.As(err, &errno) && errno != unix.ECONNRESET {
			return err
		}
		return failure.New(failure.InvalidArgument, "the upload broke off: %w", err)
	}
	return buffer.Flush()
}

type onlyReader struct{ io.Reader }
