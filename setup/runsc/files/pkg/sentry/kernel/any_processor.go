package kernel

// acceptsAnyProcessor is set before a restore that is after the files alone.
var acceptsAnyProcessor bool

// AcceptAnyProcessor has a restore accept a processor that lacks what the checkpointed programs may use. Programs that use it end by
// SIGILL if they run.
func AcceptAnyProcessor() { acceptsAnyProcessor = true }
