// This file lets runsc start before its command is known, and read the rest of its command line from a pipe.

package cli

import (
	"bufio"
	"fmt"
	"os"
)

const (
	wordsFrom  = "words-from"
	endOfWords = "."
	// wordsMissing is the exit code if the writer ended without the final dot, or wrote too many arguments.
	wordsMissing = 99
	maxWords     = 64
)

// takeWords replaces the end of a command line `... words-from PIPE` by arguments that it reads from that named pipe: one per line,
// and a dot at the end. Without the dot it runs nothing. So the program has started and initialized its packages before its command
// is needed.
func takeWords() {
	at := len(os.Args) - 2
	if at < 1 || os.Args[at] != wordsFrom {
		return
	}
	// Opening the pipe blocks until a writer opens it.
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
