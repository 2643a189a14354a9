package main

// Watches, streamed and polled, also below new and moved directories.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func (s *stream) events(t *testing.T, until string) (seen []string) {
	t.Helper()
	for !slices.Contains(seen, until) {
		message, last := s.next()
		if last {
			t.Fatalf("the watch ended: %v; seen %v", message, seen)
		}
		if event, ok := message["filesystem"].(m); ok {
			seen = append(seen, eventName(event))
		}
	}
	return seen
}

func eventName(event any) string {
	kind := strings.ToLower(strings.TrimPrefix(fmt.Sprint(dig(event, "type")), "EVENT_TYPE_"))
	return kind + " " + fmt.Sprint(dig(event, "name"))
}

func TestAWatchTellsEveryChangeByName(t *testing.T) {
	e, dir := start(t), t.TempDir()
	s := e.open("filesystem.Filesystem/WatchDir", m{"path": dir}, nil)
	if first, _ := s.next(); first["start"] == nil {
		t.Fatal(first)
	}
	script := "cd " + dir + "; echo x > f; chmod 600 f; mv f g; rm g; mkdir d; echo x > d/unseen; echo > last"
	if done := e.run(script); done.end["exited"] != true {
		t.Fatal(done)
	}
	seen := s.events(t, "create last")
	for _, want := range []string{"create f", "write f", "chmod f", "rename f", "create g", "remove g", "create d"} {
		if !slices.Contains(seen, want) {
			t.Errorf("no %q in %v", want, seen)
		}
	}
	if slices.ContainsFunc(seen, func(name string) bool { return strings.Contains(name, "unseen") }) {
		t.Errorf("a watch that is not recursive looked below: %v", seen)
	}
}

func TestARecursiveWatchSeesWhatIsMadeInNewDirectoriesOnce(t *testing.T) {
	e, dir := start(t), t.TempDir()
	if err := os.MkdirAll(dir+"/old/deep", 0o755); err != nil {
		t.Fatal(err)
	}
	s := e.open("filesystem.Filesystem/WatchDir", m{"path": dir, "recursive": true, "include_entry": true}, nil)
	s.next()
	e.run("cd " + dir + "; touch old/deep/f; for i in 1 2 3 4 5 6 7 8; do mkdir -p n$i/a/b; touch n$i/a/b/f; done; touch made")
	seen := s.events(t, "create made")
	e.run("cd " + dir + "; mv n1 m1; touch m1/a/g; touch last")
	seen = append(seen, s.events(t, "create last")...)
	for i := 1; i <= 8; i++ {
		name := fmt.Sprintf("create n%d/a/b/f", i)
		count := 0
		for _, other := range seen {
			if other == name {
				count++
			}
		}
		if count != 1 {
			t.Errorf("%d times %q", count, name)
		}
	}
	for _, want := range []string{"create old/deep/f", "rename n1", "create m1", "create m1/a/g"} {
		if !slices.Contains(seen, want) {
			t.Errorf("no %q in %v", want, seen)
		}
	}
}

func TestAPolledWatchKeepsEventsUntilAsked(t *testing.T) {
	e, dir := start(t), t.TempDir()
	status, made := e.call("filesystem.Filesystem/CreateWatcher", m{"path": dir, "includeEntry": true}, nil)
	if status != 200 {
		t.Fatal(made)
	}
	id := m{"watcher_id": made["watcherId"]}
	e.put(filepath.Join(dir, "f"), "content", nil)
	var events []any
	eventually(t, "the write is told", func() bool {
		_, body := e.call("filesystem.Filesystem/GetWatcherEvents", id, nil)
		more, _ := body["events"].([]any)
		events = append(events, more...)
		return slices.ContainsFunc(events, func(event any) bool { return eventName(event) == "write f" })
	})
	if eventName(events[0]) != "create f" || dig(events[0], "entry", "path") != dir+"/f" {
		t.Fatal(events)
	}
	if status, body := e.call("filesystem.Filesystem/RemoveWatcher", id, nil); status != 200 {
		t.Fatal(body)
	}
	if status, body := e.call("filesystem.Filesystem/GetWatcherEvents", id, nil); status != 404 {
		t.Fatal(body)
	}
}

func TestAWatchOnWhatIsNoDirectoryIsRefused(t *testing.T) {
	e, dir := start(t), t.TempDir()
	e.put(dir+"/f", "", nil)
	for path, code := range map[string]string{dir + "/f": "invalid_argument", dir + "/none": "not_found"} {
		if message, last := e.open("filesystem.Filesystem/WatchDir", m{"path": path}, nil).next(); !last || dig(message, "error", "code") != code {
			t.Errorf("%s: %v", path, message)
		}
	}
}

func TestEndedWatchesGiveTheirPlaceBack(t *testing.T) {
	e, dir := start(t), t.TempDir()
	for range 300 {
		s := e.open("filesystem.Filesystem/WatchDir", m{"path": dir}, nil)
		message, last := s.next()
		s.close()
		if last {
			// The slots of closed streams are released a moment later.
			if dig(message, "error", "code") != "resource_exhausted" {
				t.Fatal(message)
			}
		}
	}
	eventually(t, "a watch can be opened", func() bool {
		s := e.open("filesystem.Filesystem/WatchDir", m{"path": dir}, nil)
		defer s.close()
		_, last := s.next()
		return !last
	})
}
