package kernel

// acceptsAnyProcessor is set before a restore whose only purpose is to read the sandbox's files.
var acceptsAnyProcessor bool

// AcceptAnyProcessor makes a restore accept a processor that lacks features that the checkpointed programs may use. A program that
// runs and uses such a feature is killed by SIGILL.
func AcceptAnyProcessor() { acceptsAnyProcessor = true }
