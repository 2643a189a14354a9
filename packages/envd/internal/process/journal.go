package process

// The newest starts and ends of processes, which the node reads when a client requests the sandbox's log. The journal is in memory only, so it is part of
// pauses and forks together with its processes, and fills no disk.

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

const (
	journalEntries  = 1000
	maxCommandBytes = 512
)

// journalEntry is a start or, with Ended set, the end of a process. It has no variables, since they contain secrets.
type journalEntry struct {
	Seq      uint64 `json:"seq"`
	At       int64  `json:"at"` // unix milliseconds
	Ended    bool   `json:"ended,omitempty"`
	PID      int    `json:"pid"`
	User     string `json:"user"`
	Command  string `json:"command"`
	Cut      bool   `json:"cut,omitempty"` // Command is truncated
	ExitCode int32  `json:"exitCode,omitempty"`
	Status   string `json:"status,omitempty"`
	Millis   int64  `json:"millis,omitempty"` // how long it ran
}

type journal struct {
	// run differs after a restart of envd, where seq starts at 1 again.
	run string

	mu   sync.Mutex
	next uint64 // the first entry has 1
	ring []journalEntry
}

func newJournal() *journal {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return &journal{run: hex.EncodeToString(random[:]), next: 1}
}

func (j *journal) add(entry journalEntry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	entry.Seq = j.next
	entry.At = time.Now().UnixMilli()
	if len(j.ring) < journalEntries {
		j.ring = append(j.ring, entry)
	} else {
		j.ring[(j.next-1)%journalEntries] = entry
	}
	j.next++
}

// after returns the entries after seq, oldest first.
func (j *journal) after(seq uint64) []journalEntry {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := max(seq+1, j.next-uint64(len(j.ring)))
	if first >= j.next {
		return []journalEntry{}
	}
	entries := make([]journalEntry, 0, j.next-first)
	for ; first < j.next; first++ {
		entries = append(entries, j.ring[(first-1)%journalEntries])
	}
	return entries
}

// note records one process: its start, and later, from another goroutine, its end.
type note struct {
	journal *journal
	entry   journalEntry
	begun   time.Time
}

func (j *journal) note(who account.Account, c *config) *note {
	command, cut := commandLine(c)
	return &note{journal: j, entry: journalEntry{User: who.Name, Command: command, Cut: cut}}
}

func (n *note) started(pid int) {
	n.entry.PID, n.begun = pid, time.Now()
	n.journal.add(n.entry)
}

func (n *note) ended(status unix.WaitStatus) {
	end := endOf(status)
	n.entry.Ended, n.entry.ExitCode, n.entry.Status = true, end.ExitCode, end.Status
	n.entry.Millis = time.Since(n.begun).Milliseconds()
	n.journal.add(n.entry)
}

// serve answers GET /svc/log?after=SEQ.
func (j *journal) serve(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint("0"+r.URL.Query().Get("after"), 10, 63)
	if err != nil {
		failure.Write(w, failure.New(failure.InvalidArgument, "after must be a number, got '%.20s'", r.URL.Query().Get("after")))
		return
	}
	body, err := json.Marshal(struct {
		Run     string         `json:"run"`
		Entries []journalEntry `json:"entries"`
	}{j.run, j.after(after)})
	if err != nil {
		failure.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body)
}

// commandLine returns the command as it would be typed in a shell, up to maxCommandBytes.
func commandLine(c *config) (line string, cut bool) {
	var text strings.Builder
	for i, word := range append([]string{c.Cmd}, c.Args...) {
		if i > 0 {
			text.WriteByte(' ')
		}
		if text.Len() > maxCommandBytes {
			break
		}
		// An argument may be megabytes long.
		if len(word) > maxCommandBytes {
			word = word[:maxCommandBytes+1]
		}
		if word != "" && strings.Trim(word, plainCharacters) == "" {
			text.WriteString(word)
		} else {
			text.WriteString("'" + strings.ReplaceAll(word, "'", `'\''`) + "'")
		}
	}
	line = text.String()
	if len(line) <= maxCommandBytes {
		return line, false
	}
	// A character that was cut is removed.
	return strings.ToValidUTF8(line[:maxCommandBytes], ""), true
}

const plainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./:,@%"
