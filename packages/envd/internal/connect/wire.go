// Package connect implements the parts of the Connect protocol that the E2B clients use, with the JSON codec over HTTP/1.1.
//
// It is our own because protobuf's reflection alone would add 9 MB to the agent; the messages are few and simple, so they are structs with JSON tags. Tests
// check them against packages/contract/proto.
package connect

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Uint32 accepts what proto3 JSON allows for an integer: 80, 80.0, 8e1 and "80".
type Uint32 uint32

func (n *Uint32) UnmarshalJSON(text []byte) error {
	word := strings.Trim(string(text), `"`)
	if word == "null" {
		return nil
	}
	value, err := strconv.ParseFloat(word, 64)
	if err != nil || value < 0 || value > math.MaxUint32 || value != math.Trunc(value) {
		return fmt.Errorf("%s is not an unsigned 32-bit integer", text)
	}
	*n = Uint32(value)
	return nil
}

// Bytes accepts standard and URL-safe base64, padded or not.
type Bytes []byte

var urlToStd = strings.NewReplacer("-", "+", "_", "/")

func (b *Bytes) UnmarshalJSON(text []byte) error {
	var word string
	if err := json.Unmarshal(text, &word); err != nil {
		return err
	}
	if strings.ContainsAny(word, "-_") {
		word = urlToStd.Replace(word)
	}
	decoded, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(word, "="))
	if err != nil {
		return fmt.Errorf("not base64: %w", err)
	}
	*b = decoded
	return nil
}

// Enum resolves an enum given by name or by number; unknown names are refused.
func Enum(text []byte, byName map[string]int32) (int32, error) {
	word := strings.Trim(string(text), `"`)
	if word == "null" {
		return 0, nil
	}
	if value, ok := byName[word]; ok {
		return value, nil
	}
	value, err := strconv.ParseInt(word, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("unknown enum value %s", text)
	}
	return int32(value), nil
}
