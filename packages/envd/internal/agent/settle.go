package agent

// Applies a new identity to the system around envd. Everything here is best effort, since the identity itself is already in effect.

import (
	"bytes"
	"encoding/json"
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
	envsFile  = "etc/svc/envs.json"
	hostsMark = "# svc: this sandbox"
	caPath    = "/usr/local/share/ca-certificates/svc.crt"
	caBundle  = "/etc/ssl/certs/ca-certificates.crt"
	caBegin   = "# svc: begin\n"
	caEnd     = "# svc: end\n"

	// A restored machine's clock lags behind; a delayed request must not set it back.
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
	// The generation is published after the kernel's randomness was reseeded, since programs that it wakes take their seeds from there.
	if q.Generation != nil {
		attempt("generation", publish(a.root, now.Generation))
	}
	if q.CABundle != "" {
		attempt("caBundle", trust(q.CABundle))
	}
	if q.EnvVars != nil {
		attempt("envVars", publishEnvs(a.root, now.EnvVars))
	}
}

// publishEnvs writes the sandbox's variables for programs that have started before it got them, in templates that carry the file.
func publishEnvs(root string, envs map[string]string) error {
	file, err := os.OpenFile(filepath.Join(root, envsFile), os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return err
	}
	text, err := json.Marshal(envs)
	if err == nil {
		_, err = file.WriteAt(text, 0)
	}
	return errors.Join(err, file.Truncate(int64(len(text))), file.Close())
}

func rename(host string) error {
	var refused error
	// The runtime has already named a restored machine, and envd may lack the right to do so.
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

// hostsWith replaces the last host name by the new one and keeps everything else: without an entry for the host name, sudo waits for DNS.
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
		// Lines that we wrote are removed. A line to which a user added names stays, without our previous host name.
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

// resolverWith writes the file as the runtime does at a first start; in a file that was edited, only the last server is replaced.
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

// rewrite replaces a file atomically if possible; a bind-mounted one can only be written in place.
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
