package connect

// Streams: envelopes of one flag byte, four bytes of length, and JSON; the last one has flag 0x02.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"svc/envd/internal/failure"
)

const (
	flagCompressed = 0x01
	flagEnd        = 0x02
	headerBytes    = 5

	// A client that reads nothing for this long is treated as gone, whatever TCP reports.
	writeStall = 60 * time.Second
)

// Frame is one encoded envelope; several streams may share it.
type Frame []byte

// NewFrame encodes a message in its envelope.
func NewFrame(message any) Frame {
	body, err := json.Marshal(message)
	if err != nil {
		panic(err) // the messages are our own structs, so encoding cannot fail
	}
	return RawFrame(body)
}

// RawFrame wraps encoded JSON.
func RawFrame(body []byte) Frame {
	frame := make(Frame, headerBytes, headerBytes+len(body))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(body)))
	return append(frame, body...)
}

// Stream is the server's side of a server stream.
type Stream struct {
	Request *http.Request
	w       http.ResponseWriter
	control *http.ResponseController
}

// Send writes one message and flushes it.
func (s *Stream) Send(frame Frame) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeStall))
	if _, err := s.w.Write(frame); err != nil {
		return err
	}
	return s.control.Flush()
}

// ServerStream serves calls with one request and many answers.
func ServerStream[Req any](handle func(context.Context, *Req, *Stream) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acceptable(w, r, contentTypeStream) {
			return
		}
		stream := &Stream{Request: r, w: w, control: http.NewResponseController(w)}
		stream.begin()
		stream.end(serverStream(r, stream, handle))
	})
}

func serverStream[Req any](r *http.Request, stream *Stream, handle func(context.Context, *Req, *Stream) error) error {
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return err
	}
	defer cancel()
	messages := receiver{r}
	body, err := messages.next()
	if err != nil {
		return orMissing(err)
	}
	// Reading to the end also lets net/http notice when the client disconnects.
	if _, err := messages.next(); !errors.Is(err, io.EOF) {
		return failure.New(failure.InvalidArgument, "this call takes exactly one message")
	}
	var request Req
	if err := decode(body, &request); err != nil {
		return err
	}
	return handle(ctx, &request, stream)
}

// ClientStream serves calls with many requests and one answer; next returns io.EOF after the last.
func ClientStream[Req, Res any](handle func(ctx context.Context, next func() (*Req, error)) (*Res, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !acceptable(w, r, contentTypeStream) {
			return
		}
		stream := &Stream{Request: r, w: w, control: http.NewResponseController(w)}
		// With full duplex an early failure is sent at once, not after the client's last message.
		_ = stream.control.EnableFullDuplex()
		response, err := clientStream(r, handle)
		stream.begin()
		if err == nil {
			err = stream.Send(NewFrame(response))
		}
		stream.end(err)
	})
}

func clientStream[Req, Res any](r *http.Request, handle func(context.Context, func() (*Req, error)) (*Res, error)) (*Res, error) {
	ctx, cancel, err := withTimeout(r)
	if err != nil {
		return nil, err
	}
	defer cancel()
	messages := receiver{r}
	return handle(ctx, func() (*Req, error) {
		body, err := messages.next()
		if err != nil {
			return nil, err
		}
		var request Req
		if err := decode(body, &request); err != nil {
			return nil, err
		}
		return &request, nil
	})
}

func (s *Stream) begin() {
	s.w.Header().Set("Content-Type", contentTypeStream)
	s.w.WriteHeader(http.StatusOK)
}

// end sends the closing envelope; without it clients report a broken stream.
func (s *Stream) end(err error) {
	var trailer struct {
		Error *wireError `json:"error,omitempty"`
	}
	if err != nil {
		f := failure.Of(err)
		trailer.Error = &wireError{f.Code, f.Message}
	}
	frame := NewFrame(trailer)
	frame[0] = flagEnd
	_ = s.Send(frame)
	// The deadline belongs to the connection and would otherwise affect its next request.
	_ = s.control.SetWriteDeadline(time.Time{})
}

type receiver struct{ request *http.Request }

func (m receiver) next() ([]byte, error) {
	var header [headerBytes]byte
	if _, err := io.ReadFull(m.request.Body, header[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, failure.New(failure.InvalidArgument, "an envelope broke off: %w", err)
	}
	size := binary.BigEndian.Uint32(header[1:])
	if size > maxMessageBytes {
		return nil, failure.New(failure.ResourceExhausted, "a message may have %d bytes, this one has %d", maxMessageBytes, size)
	}
	body := io.LimitReader(m.request.Body, int64(size))
	switch {
	case header[0]&flagEnd != 0:
		return nil, io.EOF
	case header[0]&flagCompressed == 0:
		message, err := readAllBounded(body)
		if err == nil && len(message) < int(size) {
			err = failure.New(failure.InvalidArgument, "a message broke off after %d of %d bytes", len(message), size)
		}
		return message, err
	case m.request.Header.Get("Connect-Content-Encoding") == "gzip":
		return gunzip(body)
	}
	return nil, failure.New(failure.Internal, "a compressed message without Connect-Content-Encoding: gzip")
}

func orMissing(err error) error {
	if errors.Is(err, io.EOF) {
		return failure.New(failure.InvalidArgument, "the request has no message")
	}
	return err
}
