// Package agent is envd as a server: who may call it, what it knows of its sandbox, and its own endpoints.
package agent

import (
	"sync"
	"sync/atomic"
)

// Identity is what the node told envd about its sandbox; an /init changes the members it names.
type Identity struct {
	SandboxID      string
	Generation     string // of this sandbox's life: another after every restore
	Nameserver     string // the last one told
	AccessToken    string // empty: insecure
	EnvVars        map[string]string
	DefaultUser    string
	DefaultWorkdir string
	StrictFiles    bool // files are reached with the named user's rights alone
}

// State holds the identity of the moment; a reader never sees half of a change.
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

// Now is the identity; callers must not change it.
func (s *State) Now() *Identity { return s.identity.Load() }
