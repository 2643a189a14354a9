package process

// Checks the Go messages against process.proto.

import (
	"testing"

	"svc/envd/internal/protofile"
)

func TestTheStructsHaveEveryFieldOfTheDescription(t *testing.T) {
	messages, err := protofile.Messages("../../../contract/proto/process/process.proto")
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]any{
		"PTY": terminal{}, "PTY.Size": terminalSize{}, "ProcessConfig": config{}, "ProcessSelector": selector{},
		"ProcessInput": input{}, "ProcessInfo": processInfo{}, "ProcessEvent.StartEvent": startEvent{}, "ProcessEvent.EndEvent": endEvent{},
		"StartRequest": startRequest{}, "StartResponse": eventResponse{}, "ConnectRequest": connectRequest{}, "ConnectResponse": eventResponse{},
		"ListResponse": listResponse{}, "SendInputRequest": sendInputRequest{}, "StreamInputRequest": streamInputRequest{},
		"UpdateRequest": updateRequest{}, "SendSignalRequest": sendSignalRequest{}, "CloseStdinRequest": closeStdinRequest{},
	}
	// These messages are written by hand or anonymous: dataFrame and streamInputRequest.
	elsewhere := map[string]bool{"ProcessEvent": true, "ProcessEvent.DataEvent": true, "StreamInputRequest.StartEvent": true, "StreamInputRequest.DataEvent": true}
	for name, fields := range messages {
		if len(fields) == 0 || elsewhere[name] {
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
	if len(messages["ProcessEvent"]) != 4 || len(messages["ProcessEvent.DataEvent"]) != 3 {
		t.Errorf("the description was misread: %v", messages)
	}
}
