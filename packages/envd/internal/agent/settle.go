package agent

// What a new identity changes in the system around envd. All of it is best effort: the identity already holds.

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	hostsMark = "# svc: this sandbox"
	caPath    = "/usr/local/share/ca-certificates/svc.crt"
	caBundle  = "/etc/ssl/certs/ca-certificates.crt"
	caBegin   = "# svc: begin\n"
	caEnd     = "# svc: end\n"

	// A restored machine's clock lags; a late request must not turn it back.
	clockTolerance = 5 * time.Second
)

func (a *Agent) settle(q *initRequest) {
	attempt := func(what string, err error) {
		if err != nil {
			slog.Warn("init: "+what+" failed", "error", err.Error())
		}
	}
	if len(q.Entropy) > 0 {
		attempt("entropy", os.WriteFile("/dev/urandom", q.Entropy, 0))
	}
	if time.Until(q.Timestamp.Time) > clockTolerance {
		now := unix.NsecToTimeval(q.Timestamp.UnixNano())
		attempt("clock", unix.Settimeofday(&now))
	}
	if q.Hostname != "" {
		attempt("hostname", rename(q.Hostname))
	}
	if q.CABundle != "" {
		attempt("caBundle", trust(q.CABundle))
	}
}

func rename(host string) error {
	if err := unix.Sethostname([]byte(host)); err != nil {
		return err
	}
	if err := rewrite("/etc/hostname", []byte(host+"\n")); err != nil {
		return err
	}
	old, err := os.ReadFile("/etc/hosts")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return rewrite("/etc/hosts", hostsWith(old, host))
}

// hostsWith keeps every line but our own last one: sudo waits for DNS when the host's name is not here.
func hostsWith(old []byte, host string) []byte {
	var kept strings.Builder
	for line := range strings.Lines(string(old)) {
		if !strings.HasSuffix(strings.TrimSpace(line), hostsMark) {
			kept.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	fmt.Fprintf(&kept, "127.0.1.1 %s %s\n", host, hostsMark)
	return []byte(kept.String())
}

func trust(pem string) error {
	pem = strings.TrimSpace(pem) + "\n"
	if err := os.MkdirAll(filepath.Dir(caPath), 0o755); err != nil {
		return err
	}
	if err := rewrite(caPath, []byte(pem)); err != nil {
		return err
	}
	old, err := os.ReadFile(caBundle)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(caBundle), 0o755); err != nil {
		return err
	}
	return rewrite(caBundle, bundleWith(old, pem))
}

func bundleWith(old []byte, pem string) []byte {
	before, rest, found := bytes.Cut(old, []byte(caBegin))
	if found {
		_, after, _ := bytes.Cut(rest, []byte(caEnd))
		before = append(bytes.Clone(before), after...)
	}
	if len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(bytes.Clone(before), '\n')
	}
	return append(bytes.Clone(before), caBegin+pem+caEnd...)
}

// rewrite replaces a file in one step where it can; a bind-mounted one only takes writing in place.
func rewrite(path string, content []byte) error {
	temporary := path + ".svc"
	if err := os.WriteFile(temporary, content, 0o644); err == nil {
		if err := os.Rename(temporary, path); err == nil {
			return nil
		}
		_ = os.Remove(temporary)
	}
	return os.WriteFile(path, content, 0o644)
}
