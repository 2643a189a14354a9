package connect

// Envelopes and JSON of the Connect protocol, byte by byte.

import (
	"encoding/json"
	"testing"
)

func TestNumbersAndBytesAreTakenAsProto3JSONAllows(t *testing.T) {
	for text, want := range map[string]Uint32{`80`: 80, `"80"`: 80, `80.0`: 80, `8e1`: 80, `4294967295`: 4294967295, `null`: 0} {
		var n Uint32
		if err := json.Unmarshal([]byte(text), &n); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{`-1`, `1.5`, `4294967296`, `"x"`, `true`} {
		var n Uint32
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s was taken as %d", text, n)
		}
	}
	for text, want := range map[string]string{`"+/8="`: "\xfb\xff", `"-_8"`: "\xfb\xff", `""`: "", `"aGk"`: "hi"} {
		var b Bytes
		if err := json.Unmarshal([]byte(text), &b); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", text, b, err)
		}
	}
	var b Bytes
	if err := json.Unmarshal([]byte(`"a"`), &b); err == nil {
		t.Error("half a byte was taken")
	}
	names := map[string]int32{"NINE": 9}
	for text, want := range map[string]int32{`"NINE"`: 9, `9`: 9, `"9"`: 9, `null`: 0} {
		if got, err := Enum([]byte(text), names); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	if _, err := Enum([]byte(`"TEN"`), names); err == nil {
		t.Error("an unknown name was taken")
	}
}
