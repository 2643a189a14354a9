// Package failure defines the one type of error that envd answers with, and the table of its codes and statuses.
package failure

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"
)

// Code is a Connect error code, with its spelling on the wire.
type Code string

const (
	Canceled           Code = "canceled"
	Unknown            Code = "unknown"
	InvalidArgument    Code = "invalid_argument"
	DeadlineExceeded   Code = "deadline_exceeded"
	NotFound           Code = "not_found"
	AlreadyExists      Code = "already_exists"
	PermissionDenied   Code = "permission_denied"
	ResourceExhausted  Code = "resource_exhausted"
	FailedPrecondition Code = "failed_precondition"
	Unimplemented      Code = "unimplemented"
	Internal           Code = "internal"
	Unavailable        Code = "unavailable"
	Unauthenticated    Code = "unauthenticated"
)

// The Connect protocol defines these statuses.
var httpStatus = map[Code]int{
	Canceled: 499, Unknown: 500, InvalidArgument: 400, DeadlineExceeded: 504, NotFound: 404, AlreadyExists: 409,
	PermissionDenied: 403, ResourceExhausted: 429, FailedPrecondition: 400, Unimplemented: 501, Internal: 500,
	Unavailable: 503, Unauthenticated: 401,
}

// Failure is an error with a code; Status, if set, overrides the HTTP status of the code.
type Failure struct {
	Code    Code
	Status  int
	Message string
	cause   error
}

func (f *Failure) Error() string { return f.Message }
func (f *Failure) Unwrap() error { return f.cause }

// HTTPStatus returns the status of a plain HTTP answer.
func (f *Failure) HTTPStatus() int {
	if f.Status != 0 {
		return f.Status
	}
	if status, ok := httpStatus[f.Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// New creates a failure; a %w in the format keeps the cause.
func New(code Code, format string, args ...any) *Failure {
	wrapped := fmt.Errorf(format, args...)
	return &Failure{Code: code, Message: wrapped.Error(), cause: errors.Unwrap(wrapped)}
}

// HTTP creates a failure for an endpoint whose status differs from that of its code.
func HTTP(status int, code Code, format string, args ...any) *Failure {
	f := New(code, format, args...)
	f.Status = status
	return f
}

// For any error, Of returns the Failure in it, or converts it to one.
func Of(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return New(DeadlineExceeded, "the time given by Connect-Timeout-Ms is over")
	case errors.Is(err, context.Canceled):
		return New(Canceled, "the client went away")
	}
	return New(codeOfErrno(err), "%w", err)
}

// About prefixes a kernel error with a description of the requested operation.
func About(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var f *Failure
	if errors.As(err, &f) {
		return err
	}
	var errno syscall.Errno
	what := fmt.Sprintf(format, args...)
	made := New(codeOfErrno(err), "%s: %w", what, err)
	if errors.As(err, &errno) {
		made.Message = what + ": " + errno.Error()
		if errno == syscall.ENOSPC || errno == syscall.EDQUOT {
			made.Status = http.StatusInsufficientStorage
		}
	}
	return made
}

func codeOfErrno(err error) Code {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return Internal
	}
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return NotFound
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return PermissionDenied
	case syscall.EEXIST:
		return AlreadyExists
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM:
		return ResourceExhausted
	case syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ELOOP, syscall.EISDIR:
		return InvalidArgument
	case syscall.ENOTEMPTY, syscall.EBUSY, syscall.ETXTBSY:
		return FailedPrecondition
	}
	return Internal
}
