package agent

// What a new identity changes in the system around envd. All of it is best effort: the identity already holds.

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
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

const resolverOptions = "options timeout:2 attempts:2\n"

func (a *Agent) settle(q *initRequest, lastNameserver string, now *Identity) {
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
	if q.MachineID != "" {
		attempt("machineId", rewrite("/etc/machine-id", []byte(q.MachineID+"\n")))
	}
	if q.Nameserver != nil {
		attempt("nameserver", resolveBy(lastNameserver, *q.Nameserver))
	}
	// After the kernel's randomness is its own: who is woken by it seeds from there.
	if q.Generation != nil {
		attempt("generation", publish(a.root, now.Generation))
	}
	if q.CABundle != "" {
		attempt("caBundle", trust(q.CABundle))
	}
}

func rename(host string) error {
	var refused error
	// The runtime has given a restored machine its name already, and envd may lack the right to.
	if now, err := os.Hostname(); err != nil || now != host {
		refused = unix.Sethostname([]byte(host))
	}
	last, _ := os.ReadFile("/etc/hostname")
	if err := rewrite("/etc/hostname", []byte(host+"\n")); err != nil {
		return errors.Join(refused, err)
	}
	old, err := os.ReadFile("/etc/hosts")
	if err != nil && !os.IsNotExist(err) {
		return errors.Join(refused, err)
	}
	return errors.Join(refused, rewrite("/etc/hosts", hostsWith(old, strings.TrimSpace(string(last)), host)))
}

// hostsWith puts the new name where the last one stood and keeps all else: sudo waits for DNS when the host's name is not here.
func hostsWith(old []byte, last, host string) []byte {
	const own = "127.0.1.1"
	var kept strings.Builder
	for line := range strings.Lines(string(old)) {
		text, comment, _ := strings.Cut(strings.TrimSpace(line), "#")
		words := strings.Fields(text)
		if len(words) == 0 || words[0] != own {
			kept.WriteString(strings.TrimSuffix(line, "\n") + "\n")
			continue
		}
		// Our own lines go; in one that somebody has added names to, only the last host's name does.
		names := slices.DeleteFunc(words[1:], func(name string) bool { return name == last || name == host })
		if len(names) > 0 && !strings.Contains("#"+comment, hostsMark) {
			kept.WriteString(own + " " + strings.Join(names, " "))
			if comment != "" {
				kept.WriteString(" #" + comment)
			}
			kept.WriteString("\n")
		}
	}
	fmt.Fprintf(&kept, "%s %s %s\n", own, host, hostsMark)
	return []byte(kept.String())
}

func resolveBy(last, nameserver string) error {
	old, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	return rewrite("/etc/resolv.conf", resolverWith(old, last, nameserver))
}

// resolverWith writes the file as the runtime does at a first start; one that somebody has changed keeps all but the last server.
func resolverWith(old []byte, last, nameserver string) []byte {
	first, rest, _ := strings.Cut(string(old), "\n")
	if strings.TrimSpace(string(old)) == "" || (strings.HasPrefix(first, "nameserver ") && rest == resolverOptions) {
		if nameserver == "" {
			return nil
		}
		return []byte("nameserver " + nameserver + "\n" + resolverOptions)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(old)) {
		if words := strings.Fields(line); last != "" && len(words) == 2 && words[0] == "nameserver" && words[1] == last {
			if nameserver == "" {
				continue
			}
			line = "nameserver " + nameserver + "\n"
		}
		kept.WriteString(line)
	}
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
