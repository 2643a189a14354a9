package main

// GET /svc/log: the processes that were started, and how they ended.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

type journalEntry struct {
	Seq      uint64
	At       int64
	Ended    bool
	PID      int
	User     string
	Command  string
	Cut      bool
	ExitCode int32
	Status   string
}

func (e *envd) journal(after uint64) (string, []journalEntry) {
	e.t.Helper()
	var page struct {
		Run     string
		Entries []journalEntry
	}
	given := e.ask("GET", fmt.Sprintf("/svc/log?after=%d", after), nil, nil)
	if err := json.Unmarshal(given.body, &page); given.status != http.StatusOK || err != nil {
		e.t.Fatalf("the log answers %d %s: %v", given.status, given.body, err)
	}
	return page.Run, page.Entries
}

func TestTheLogTellsStartsAndEndsWithoutVariables(t *testing.T) {
	e := start(t)
	e.run("echo \"it's\"; exit 3")
	e.run("kill -9 $$")
	run, entries := e.journal(0)
	if len(entries) != 4 || run == "" {
		t.Fatalf("run %q, entries %+v", run, entries)
	}
	begun, ended := entries[0], entries[1]
	if begun.Ended || begun.Command != `/bin/sh -c 'echo "it'\''s"; exit 3'` || begun.PID == 0 || begun.User == "" || begun.At == 0 {
		t.Errorf("the start is %+v", begun)
	}
	if !ended.Ended || ended.PID != begun.PID || ended.ExitCode != 3 || ended.Status != "exit status 3" || ended.Seq != begun.Seq+1 {
		t.Errorf("the end is %+v", ended)
	}
	if killed := entries[3]; killed.ExitCode != -1 || killed.Status != "signal: killed" {
		t.Errorf("the killed one's end is %+v", killed)
	}
	if _, rest := e.journal(3); len(rest) != 1 || rest[0].Seq != 4 {
		t.Errorf("behind 3: %+v", rest)
	}
	if _, rest := e.journal(99); len(rest) != 0 {
		t.Errorf("behind 99: %+v", rest)
	}
}

func TestTheLogIsBoundedInEntriesAndInLength(t *testing.T) {
	e := start(t)
	for range 520 {
		e.run("exit 0")
	}
	long := m{"process": m{"cmd": "true", "args": []string{strings.Repeat("ä", 60_000)}}, "stdin": false}
	e.open("process.Process/Start", long, nil).rest()
	_, entries := e.journal(0)
	if len(entries) != 1000 || entries[999].Seq != 1042 || entries[0].Seq != 43 {
		t.Fatalf("%d entries, from %d to %d", len(entries), entries[0].Seq, entries[len(entries)-1].Seq)
	}
	if last := entries[999]; !last.Cut || len(last.Command) > 512 || !strings.HasPrefix(last.Command, "true 'ää") || strings.ContainsRune(last.Command, '\uFFFD') {
		t.Errorf("the long one is %d bytes: %q", len(last.Command), last.Command)
	}
}
