// Package agent is envd's server: access control, the identity of its sandbox, and envd's own endpoints.
package agent

import (
	"sync"
	"sync/atomic"
)

// Identity is the node's description of the sandbox; an /init changes the members that it contains.
type Identity struct {
	SandboxID      string
	Generation     string // changes with every restore of this sandbox
	Nameserver     string // the last one that /init set
	AccessToken    string // empty: insecure
	EnvVars        map[string]string
	DefaultUser    string
	DefaultWorkdir string
	StrictFiles    bool // files are reached with the named user's rights alone
}

// State holds the current identity; a reader never sees a partial change.
type State struct {
	identity atomic.Pointer[Identity]
	changing sync.Mutex
	nonce    uint64 // the last accepted; guarded by changing
}

func NewState(defaultUser string) *State {
	s := &State{}
	s.identity.Store(&Identity{DefaultUser: defaultUser})
	return s
}

// Now returns the current identity; callers must not change it.
func (s *State) Now() *Identity { return s.identity.Load() }
