package process

// Makes the host's kernel end a client's program, not envd, when the sandbox's memory runs out: envd is the first process, so the sandbox would end with it.

import (
	"os"
	"strconv"
	"strings"
)

// oomScoreAdj counts a program as if it used half of the sandbox's memory more. Raising the score needs no privilege, unlike lowering envd's.
var oomScoreAdj = []byte("500")

// earlyChildren bounds the search for children of a program that forks faster than envd looks.
const earlyChildren = 64

// preferAsVictim raises the score of a program, which its later children inherit, and of the children that it has already. An error leaves envd's score.
func preferAsVictim(program int) {
	waiting := []string{strconv.Itoa(program)}
	for seen := 0; len(waiting) > 0 && seen < earlyChildren; seen++ {
		pid := waiting[0]
		_ = os.WriteFile("/proc/"+pid+"/oom_score_adj", oomScoreAdj, 0)
		children, _ := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
		waiting = append(waiting[1:], strings.Fields(string(children))...)
	}
}
