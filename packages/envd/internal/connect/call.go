package connect

// The HTTP side of a call: accepted requests, time limits, and plain error answers.

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"svc/envd/internal/failure"
)

const (
	// A message is kept in memory as a whole; bulk data belongs to /files.
	maxMessageBytes = 32 << 20

	contentTypeUnary  = "application/json"
	contentTypeStream = "application/connect+json"

	defaultKeepalive = 90 * time.Second
	minKeepalive     = time.Second
)

// Unary serves calls with one request and one answer.
func Unary[Req, Res any](handle func(context.Context, *Req) (*Res, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acceptable(w, r, contentTypeUnary) {
			return
		}
		response, err := unary(r, handle)
		if err != nil {
			writeUnaryError(w, err)
			return
		}
		body, err := json.Marshal(response)
		if err != nil {
			writeUnaryError(w, err)
			return
		}
		w.Header().Set("Content-Type", contentTypeUnary)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	})
}

func unary[Req, Res any](r *http.Request, handle func(context.Context, *Req) (*Res, error)) (*Res, error) {
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return nil, err
	}
	defer cancel()
	body, err := unaryBody(r)
	if err != nil {
		return nil, err
	}
	var request Req
	if err := decode(body, &request); err != nil {
		return nil, err
	}
	return handle(ctx, &request)
}

func unaryBody(r *http.Request) ([]byte, error) {
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return readAllBounded(r.Body)
	case "gzip":
		return gunzip(r.Body)
	default:
		return nil, failure.New(failure.Unimplemented, "unknown compression %q: supported encodings are gzip and identity", encoding)
	}
}

func readAllBounded(from io.Reader) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, maxMessageBytes+1))
	if err != nil {
		return nil, failure.New(failure.InvalidArgument, "the request's body broke off: %w", err)
	}
	if len(body) > maxMessageBytes {
		return nil, failure.New(failure.ResourceExhausted, "a message may have %d bytes; send bulk data through /files", maxMessageBytes)
	}
	return body, nil
}

func gunzip(from io.Reader) ([]byte, error) {
	reader, err := gzip.NewReader(from)
	if err != nil {
		return nil, failure.New(failure.InvalidArgument, "the message is not gzip: %w", err)
	}
	return readAllBounded(reader)
}

// Decode is for JSON of other endpoints; values that cannot be decoded exactly are refused.
func Decode(body []byte, into any) error { return decode(body, into) }

func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return failure.New(failure.InvalidArgument, "the message is not the JSON expected here: %w", err)
	}
	return exact(body, into)
}

// acceptable answers a request that is not a call of the expected kind with an error.
func acceptable(w http.ResponseWriter, r *http.Request, contentType string) bool {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return false
	}
	got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || got != contentType {
		w.Header().Set("Accept-Post", contentType)
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return false
	}
	return true
}

// Timeout reads Connect-Timeout-Ms; zero means that none was given.
func Timeout(r *http.Request) (time.Duration, error) {
	text := r.Header.Get("Connect-Timeout-Ms")
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseUint(text, 10, 64)
	if err != nil || len(text) > 10 {
		return 0, failure.New(failure.InvalidArgument, "Connect-Timeout-Ms must be at most ten digits, got %q", text)
	}
	// Zero milliseconds means a deadline that has already passed, not the absence of one.
	return max(time.Duration(ms)*time.Millisecond, 1), nil
}

func withTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	if version := r.Header.Get("Connect-Protocol-Version"); version != "" && version != "1" {
		return nil, nil, failure.New(failure.InvalidArgument, "Connect-Protocol-Version must be 1, got %q", version)
	}
	timeout, err := Timeout(r)
	if err != nil {
		return nil, nil, err
	}
	if timeout == 0 {
		ctx, cancel := context.WithCancel(r.Context())
		return ctx, cancel, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	return ctx, cancel, nil
}

// Keepalive returns the interval at which a stream sends keepalives: Keepalive-Ping-Interval, in seconds.
func Keepalive(r *http.Request) time.Duration {
	seconds, err := strconv.Atoi(r.Header.Get("Keepalive-Ping-Interval"))
	if err != nil || seconds <= 0 || seconds > 24*3600 {
		return defaultKeepalive
	}
	return max(time.Duration(seconds)*time.Second, minKeepalive)
}

type wireError struct {
	Code    failure.Code `json:"code"`
	Message string       `json:"message,omitempty"`
}

func writeUnaryError(w http.ResponseWriter, err error) {
	if errors.Is(err, http.ErrAbortHandler) {
		panic(err)
	}
	f := failure.Of(err)
	body, _ := json.Marshal(wireError{f.Code, f.Message})
	w.Header().Set("Content-Type", contentTypeUnary)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	status := (&failure.Failure{Code: f.Code}).HTTPStatus()
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
