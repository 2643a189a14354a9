// A runsc that is started before its verb is known.

package cli

import (
	"bufio"
	"fmt"
	"os"
)

const (
	wordsFrom  = "words-from"
	endOfWords = "."
	// The process that was to write the words has ended, or wrote too many.
	wordsMissing = 99
	maxWords     = 64
)

// takeWords replaces the end of a command line of the form `... words-from PIPE` by the words that come through that named pipe, a
// line each and at last a dot. Without the dot nothing is run. The start of this program, with all that its packages initialize, is
// then over before somebody waits for it.
func takeWords() {
	at := len(os.Args) - 2
	if at < 1 || os.Args[at] != wordsFrom {
		return
	}
	// The open waits for a writer.
	pipe, err := os.Open(os.Args[at+1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", wordsFrom, err)
		os.Exit(wordsMissing)
	}
	defer pipe.Close()
	args := os.Args[:at:at]
	for lines := bufio.NewScanner(pipe); lines.Scan() && len(args) < at+maxWords; {
		if lines.Text() == endOfWords {
			os.Args = args
			return
		}
		args = append(args, lines.Text())
	}
	os.Exit(wordsMissing)
}
