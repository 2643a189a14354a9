// Package process starts programs for users and transports their input, output and end.
package process

import (
	"encoding/base64"

	"svc/envd/internal/connect"
)

type config struct {
	Cmd  string            `json:"cmd,omitempty"`
	Args []string          `json:"args,omitempty"`
	Envs map[string]string `json:"envs,omitempty"`
	Cwd  *string           `json:"cwd,omitempty"`

	bytes int
}

// UnmarshalJSON accepts bytes in every string, as the kernel does.
func (c *config) UnmarshalJSON(text []byte) error {
	type plain config
	restore, count, err := connect.UnmarshalBytes(text, (*plain)(c))
	if c.bytes = count; err != nil || count == 0 {
		return err
	}
	c.Cmd = restore(c.Cmd)
	for i := range c.Args {
		c.Args[i] = restore(c.Args[i])
	}
	envs := make(map[string]string, len(c.Envs))
	for name, value := range c.Envs {
		envs[restore(name)] = restore(value)
	}
	c.Envs = envs
	if c.Cwd != nil {
		*c.Cwd = restore(*c.Cwd)
	}
	return nil
}

type terminalSize struct {
	Cols connect.Uint32 `json:"cols,omitempty"`
	Rows connect.Uint32 `json:"rows,omitempty"`
}

type terminal struct {
	Size *terminalSize `json:"size,omitempty"`
}

type selector struct {
	PID *connect.Uint32 `json:"pid,omitempty"`
	Tag *string         `json:"tag,omitempty"`
}

type input struct {
	Stdin *connect.Bytes `json:"stdin,omitempty"`
	PTY   *connect.Bytes `json:"pty,omitempty"`
}

type startRequest struct {
	Process *config   `json:"process,omitempty"`
	PTY     *terminal `json:"pty,omitempty"`
	Tag     *string   `json:"tag,omitempty"`
	Stdin   *bool     `json:"stdin,omitempty"`
}

// CarriedBytes counts the bytes of the process member, the only one that may hold text that is not UTF-8.
func (r *startRequest) CarriedBytes() int {
	if r.Process == nil {
		return 0
	}
	return r.Process.bytes
}

type connectRequest struct {
	Process *selector `json:"process,omitempty"`
}

type listRequest struct{}

type processInfo struct {
	Config config  `json:"config"`
	PID    uint32  `json:"pid,omitempty"`
	Tag    *string `json:"tag,omitempty"`
}

type listResponse struct {
	Processes []processInfo `json:"processes,omitempty"`
}

type sendInputRequest struct {
	Process *selector `json:"process,omitempty"`
	Input   *input    `json:"input,omitempty"`
}

type streamInputRequest struct {
	Start *struct {
		Process *selector `json:"process,omitempty"`
	} `json:"start,omitempty"`
	Data *struct {
		Input *input `json:"input,omitempty"`
	} `json:"data,omitempty"`
	Keepalive *struct{} `json:"keepalive,omitempty"`
}

type updateRequest struct {
	Process *selector `json:"process,omitempty"`
	PTY     *terminal `json:"pty,omitempty"`
}

// signalNumber accepts SIGNAL_SIGTERM as well as 15.
type signalNumber int32

var signalNames = map[string]int32{"SIGNAL_UNSPECIFIED": 0, "SIGNAL_SIGKILL": 9, "SIGNAL_SIGTERM": 15}

func (s *signalNumber) UnmarshalJSON(text []byte) error {
	value, err := connect.Enum(text, signalNames)
	*s = signalNumber(value)
	return err
}

type sendSignalRequest struct {
	Process *selector    `json:"process,omitempty"`
	Signal  signalNumber `json:"signal,omitempty"`
}

type closeStdinRequest struct {
	Process *selector `json:"process,omitempty"`
}

type empty struct{}

type startEvent struct {
	PID uint32 `json:"pid,omitempty"`
}

type endEvent struct {
	ExitCode int32  `json:"exitCode,omitempty"`
	Exited   bool   `json:"exited,omitempty"`
	Status   string `json:"status,omitempty"`
	Error    string `json:"error,omitempty"`
}

type processEvent struct {
	Start     *startEvent `json:"start,omitempty"`
	End       *endEvent   `json:"end,omitempty"`
	Keepalive *empty      `json:"keepalive,omitempty"`
}

type eventResponse struct {
	Event processEvent `json:"event"`
}

var keepaliveFrame = connect.NewFrame(eventResponse{processEvent{Keepalive: &empty{}}})

// dataFrame encodes the most frequent message by hand: {"event":{"data":{"stdout":"…"}}}.
func dataFrame(channel string, chunk []byte) connect.Frame {
	body := make([]byte, 0, 32+len(channel)+base64.StdEncoding.EncodedLen(len(chunk)))
	body = append(body, `{"event":{"data":{"`...)
	body = append(body, channel...)
	body = append(body, `":"`...)
	body = base64.StdEncoding.AppendEncode(body, chunk)
	body = append(body, `"}}}`...)
	return connect.RawFrame(body)
}
