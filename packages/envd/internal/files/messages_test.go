package files

// Checks the Go messages against filesystem.proto.

import (
	"testing"

	"svc/envd/internal/protofile"
)

func TestTheStructsHaveEveryFieldOfTheDescription(t *testing.T) {
	messages, err := protofile.Messages("../../../contract/proto/filesystem/filesystem.proto")
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]any{
		"EntryInfo": Entry{}, "StatRequest": pathRequest{}, "StatResponse": entryResponse{}, "MakeDirRequest": pathRequest{},
		"MakeDirResponse": entryResponse{}, "MoveRequest": moveRequest{}, "MoveResponse": entryResponse{}, "ListDirRequest": listRequest{},
		"ListDirResponse": listResponse{}, "RemoveRequest": pathRequest{}, "FilesystemEvent": event{}, "WatchDirRequest": watchRequest{},
		"WatchDirResponse": watchEvent{}, "CreateWatcherRequest": watchRequest{}, "CreateWatcherResponse": watcherCreated{},
		"GetWatcherEventsRequest": watcherRequest{}, "GetWatcherEventsResponse": watcherEvents{}, "RemoveWatcherRequest": watcherRequest{},
	}
	for name, fields := range messages {
		if len(fields) == 0 {
			continue
		}
		value, known := structs[name]
		if !known {
			t.Errorf("no struct stands for message %s", name)
			continue
		}
		for _, field := range fields {
			if !protofile.Tags(value)[field] {
				t.Errorf("%T has no %s of message %s", value, field, name)
			}
		}
	}
	if len(messages["EntryInfo"]) != 11 || len(messages["WatchDirResponse"]) != 3 {
		t.Errorf("the description was misread: %v", messages)
	}
}
