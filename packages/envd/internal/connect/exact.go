package connect

// Text that is not UTF-8: encoding/json would replace it with U+FFFD, and a command would run with another argument.
//
// JSON has no bytes, but it can spell half of a surrogate pair. As Python does with file names (PEP 383), the lone escape \udcXX stands for the byte XX from
// 0x80 on. Fields that are passed to the kernel as bytes accept it; all others refuse it.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"svc/envd/internal/failure"
)

// marker is a noncharacter, which no text contains. The character U+00XX after it stands for the byte XX.
const marker = "\ufdd0"

// byteCarrier is a request with fields that accept bytes; it returns the number of bytes they contained.
type byteCarrier interface{ CarriedBytes() int }

// exact refuses a message that decoding would change.
func exact(body []byte, into any) error {
	if !utf8.Valid(body) {
		return failure.New(failure.InvalidArgument, "the message is not UTF-8: spell a byte XX of a command, argument or variable as \\udcXX")
	}
	lone := len(loneSurrogates(body))
	if lone == 0 {
		return nil
	}
	if carrier, ok := into.(byteCarrier); ok && carrier.CarriedBytes() == lone {
		return nil
	}
	return failure.New(failure.InvalidArgument,
		"the message has text that is not Unicode (half of a surrogate pair): only a command, its arguments, variables and cwd take bytes, as \\udc80 to \\udcff")
}

// loneSurrogates returns the positions where JSON escapes spell half of a pair.
func loneSurrogates(body []byte) []int {
	var found []int
	for at := bytes.IndexByte(body, '\\'); at >= 0 && at+1 < len(body); {
		next := at + 2
		if unit, ok := escaped(body[at:]); ok {
			next = at + 6
			if unit >= 0xd800 && unit <= 0xdbff {
				if low, ok := escaped(body[next:]); ok && low >= 0xdc00 && low <= 0xdfff {
					next += 6
				} else {
					found = append(found, at)
				}
			} else if unit >= 0xdc00 && unit <= 0xdfff {
				found = append(found, at)
			}
		}
		if next >= len(body) {
			break
		}
		more := bytes.IndexByte(body[next:], '\\')
		if more < 0 {
			break
		}
		at = next + more
	}
	return found
}

func escaped(text []byte) (uint64, bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return unit, err == nil
}

// UnmarshalBytes decodes JSON whose strings may spell bytes; the caller applies restore to each string. It returns the number of bytes found.
func UnmarshalBytes(body []byte, into any) (restore func(string) string, count int, err error) {
	places := loneSurrogates(body)
	if len(places) == 0 {
		return func(text string) string { return text }, 0, json.Unmarshal(body, into)
	}
	if bytes.Contains(body, []byte(marker)) || bytes.Contains(bytes.ToLower(body), []byte(`\ufdd0`)) {
		return nil, 0, fmt.Errorf("U+FDD0 beside bytes cannot be carried")
	}
	var marked []byte
	last := 0
	for _, at := range places {
		unit, _ := escaped(body[at:])
		if unit < 0xdc80 || unit > 0xdcff {
			return nil, 0, fmt.Errorf("%s is half of a surrogate pair; bytes are \\udc80 to \\udcff", body[at:at+6])
		}
		marked = append(marked, body[last:at]...)
		marked = append(marked, fmt.Sprintf(`\ufdd0\u00%02x`, unit&0xff)...)
		last = at + 6
	}
	return restoreBytes, len(places), json.Unmarshal(append(marked, body[last:]...), into)
}

func restoreBytes(text string) string {
	if !strings.Contains(text, marker) {
		return text
	}
	var exact []byte
	for {
		before, after, found := strings.Cut(text, marker)
		exact = append(exact, before...)
		if !found {
			return string(exact)
		}
		value, size := utf8.DecodeRuneInString(after)
		exact = append(exact, byte(value))
		text = after[size:]
	}
}
