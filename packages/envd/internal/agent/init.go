package agent

// POST /init: the node tells envd which sandbox it is in, after a start, restore or fork.

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"svc/envd/internal/failure"
)

const maxInitBytes = 4 << 20

// initRequest contains the members that may change; absent ones stay as they are.
type initRequest struct {
	SandboxID      *string           `json:"sandboxId"`
	Generation     *string           `json:"generation"`
	AccessToken    *string           `json:"accessToken"`
	EnvVars        map[string]string `json:"envVars"`
	DefaultUser    *string           `json:"defaultUser"`
	DefaultWorkdir *string           `json:"defaultWorkdir"`
	StrictFiles    *bool             `json:"strictFiles"`
	Hostname       string            `json:"hostname"`
	MachineID      string            `json:"machineId"`
	Nameserver     *string           `json:"nameserver"`
	Timestamp      timestamp         `json:"timestamp"`
	CABundle       string            `json:"caBundle"`
	VolumeMounts   []volumeMount     `json:"volumeMounts"`
	Entropy        []byte            `json:"entropy"`
	OnCopyMs       int64             `json:"onCopyMs"` // this is a copy, and its hooks have this long
}

type volumeMount struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// timestamp is RFC 3339, or a number of milliseconds since 1970.
type timestamp struct{ time.Time }

func (t *timestamp) UnmarshalJSON(text []byte) error {
	if ms, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		t.Time = time.UnixMilli(ms)
		return nil
	}
	return t.Time.UnmarshalJSON(text)
}

func (a *Agent) init(w http.ResponseWriter, r *http.Request) {
	if err := a.initialise(w, r); err != nil {
		failure.Write(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *Agent) initialise(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxInitBytes+1))
	if err != nil || len(body) > maxInitBytes {
		return failure.New(failure.InvalidArgument, "the body of /init broke off or is larger than %d bytes", maxInitBytes)
	}
	s := a.state
	s.changing.Lock()
	defer s.changing.Unlock()
	nonce, signed := uint64(0), false
	if a.verifier.present() || !a.debugInit {
		if nonce, err = a.verifier.verifyInit(r, body); err != nil {
			return err
		}
		if nonce <= s.nonce {
			// The caller is the node, whose wall clock may have been set back; the header lets it continue with a valid nonce.
			w.Header().Set(nonceHeader, strconv.FormatUint(s.nonce, 10))
			return failure.New(failure.Unauthenticated, "%s must be greater than any before it; this one was used or is older", nonceHeader)
		}
		signed = true
	}
	var request initRequest
	if len(body) > 0 {
		if err := json.Unmarshal(body, &request); err != nil {
			return failure.New(failure.InvalidArgument, "the body of /init is not the JSON expected: %w", err)
		}
	}
	if err := request.check(); err != nil {
		return err
	}
	s.nonce = max(nonce, s.nonce)
	before := s.Now()
	now := request.identity(before, a.defaultUser)
	s.identity.Store(now)
	if restored(before, now) {
		// The clients of these connections belong to another sandbox, or are long gone.
		a.endOthers(r.Context())
	}
	// In bare debug mode the machine belongs to its user, so its name, clock and trust store are not changed.
	if !signed {
		return nil
	}
	a.settle(&request, before.Nameserver, now)
	if request.OnCopyMs > 0 {
		return runHooks(a.root, now, a.reaper, time.Duration(request.OnCopyMs)*time.Millisecond)
	}
	return nil
}

// restored distinguishes a copy, or a resumed sandbox, from the first identity and from a change of it.
func restored(before, now *Identity) bool {
	another := func(was, is string) bool { return was != "" && was != is }
	return another(before.SandboxID, now.SandboxID) || another(before.Generation, now.Generation)
}

func (q *initRequest) identity(before *Identity, fallbackUser string) *Identity {
	made := *before
	for member, value := range map[*string]*string{
		&made.SandboxID: q.SandboxID, &made.Generation: q.Generation, &made.Nameserver: q.Nameserver, &made.AccessToken: q.AccessToken,
		&made.DefaultUser: q.DefaultUser, &made.DefaultWorkdir: q.DefaultWorkdir,
	} {
		if value != nil {
			*member = *value
		}
	}
	if q.StrictFiles != nil {
		made.StrictFiles = *q.StrictFiles
	}
	if q.EnvVars != nil {
		made.EnvVars = q.EnvVars
	}
	if made.DefaultUser == "" {
		made.DefaultUser = fallbackUser
	}
	return &made
}

func (q *initRequest) check() error {
	for name, value := range q.EnvVars {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return failure.New(failure.InvalidArgument, "envVars: '%s' cannot be an environment variable", name)
		}
	}
	if q.Hostname != "" && !validHostname(q.Hostname) {
		return failure.New(failure.InvalidArgument, "hostname '%.80s' is not a host name", q.Hostname)
	}
	if q.MachineID != "" && (len(q.MachineID) != 32 || strings.Trim(q.MachineID, "0123456789abcdef") != "") {
		return failure.New(failure.InvalidArgument, "machineId must be 32 characters of 0-9 and a-f, got '%.80s'", q.MachineID)
	}
	if q.Nameserver != nil && *q.Nameserver != "" && net.ParseIP(*q.Nameserver) == nil {
		return failure.New(failure.InvalidArgument, "nameserver must be an IP address, got '%.80s'", *q.Nameserver)
	}
	for _, volume := range q.VolumeMounts {
		// The runtime mounts volumes; envd verifies that it did.
		info, err := os.Stat(volume.Path)
		if !filepath.IsAbs(volume.Path) || errors.Is(err, os.ErrNotExist) || (err == nil && !info.IsDir()) {
			return failure.New(failure.FailedPrecondition, "volume '%s' is not mounted at '%s'", volume.Name, volume.Path)
		}
	}
	return nil
}

func validHostname(name string) bool {
	return len(name) <= 64 && name[0] != '-' && name[0] != '.' && strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) < 0
}
