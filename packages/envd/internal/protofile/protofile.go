// Package protofile reads the messages of a .proto file, so that tests can compare the JSON structs with it.
package protofile

import (
	"os"
	"reflect"
	"regexp"
	"strings"
)

var (
	message = regexp.MustCompile(`^\s*message (\w+) \{(\})?`)
	block   = regexp.MustCompile(`^\s*(oneof|enum|service) \w+ \{`)
	field   = regexp.MustCompile(`^\s*(?:optional |repeated )?(?:map<[^>]+>|[\w.]+) (\w+) = \d+;`)
	under   = regexp.MustCompile(`_(\w)`)
)

// Messages maps each message, nested ones as Outer.Inner, to the JSON names of its fields.
func Messages(path string) (map[string][]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	var open []string // names of the enclosing blocks; a oneof has none
	for line := range strings.Lines(string(text)) {
		name := strings.Join(open, ".")
		switch {
		case message.MatchString(line):
			match := message.FindStringSubmatch(line)
			inner := strings.TrimPrefix(name+"."+match[1], ".")
			found[strings.ReplaceAll(inner, "..", ".")] = nil
			if match[2] == "" {
				open = append(open, match[1])
			}
		case block.MatchString(line):
			open = append(open, "")
		case strings.TrimSpace(line) == "}":
			open = open[:len(open)-1]
		case field.MatchString(line):
			name = strings.TrimSuffix(name, ".")
			json := under.ReplaceAllStringFunc(field.FindStringSubmatch(line)[1], func(s string) string { return strings.ToUpper(s[1:]) })
			found[name] = append(found[name], json)
		}
	}
	return found, nil
}

// Tags returns the JSON names of a struct's fields.
func Tags(value any) map[string]bool {
	tags := map[string]bool{}
	for f := range reflect.TypeOf(value).Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		tags[name] = true
	}
	return tags
}
