package agent

import (
	"context"
	"encoding/json"
	"net/http"

	"svc/envd/internal/failure"
	"svc/envd/internal/files"
	"svc/envd/internal/process"
)

// Agent combines the services behind one address.
type Agent struct {
	state       *State
	verifier    *Verifier
	defaultUser string
	debugInit   bool
	endOthers   func(context.Context)
	meter       *meter
	reaper      *process.Reaper
	root        string
}

// Options are the flags that the agent itself uses.
type Options struct {
	Verifier    *Verifier
	DefaultUser string
	DebugInit   bool
	MetricsRoot string
	Reaper      *process.Reaper
	// Root contains run/svc and etc/svc.
	Root string
	// Used is called before each process starts, once the sandbox has its identity.
	Used func()
	// EndOthers closes all connections except the one that the context's request arrived on.
	EndOthers func(context.Context)
}

// New builds the HTTP handler for all of envd's endpoints.
func New(options Options) http.Handler {
	a := &Agent{
		state: NewState(options.DefaultUser), verifier: options.Verifier, defaultUser: options.DefaultUser,
		debugInit: options.DebugInit, endOthers: options.EndOthers, meter: newMeter(options.MetricsRoot),
		reaper: options.Reaper, root: options.Root,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("POST /init", a.init)
	mux.HandleFunc("GET /relay", relay)
	mux.HandleFunc("GET /envs", a.envs)
	mux.HandleFunc("GET /metrics", a.metrics)
	process.NewService(options.Reaper, func() process.Defaults {
		identity := a.state.Now()
		if identity.SandboxID != "" {
			options.Used()
		}
		return process.Defaults{Envs: identity.EnvVars, User: identity.DefaultUser, Workdir: identity.DefaultWorkdir}
	}).Routes(mux)
	files.NewService(func() bool { return a.state.Now().StrictFiles }).Routes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		failure.Write(w, failure.New(failure.NotFound, "envd has nothing at %s %s", r.Method, r.URL.Path))
	})
	return a.admit(mux)
}

func (a *Agent) envs(w http.ResponseWriter, _ *http.Request) {
	envs := a.state.Now().EnvVars
	if envs == nil {
		envs = map[string]string{}
	}
	writeJSON(w, envs)
}

func (a *Agent) metrics(w http.ResponseWriter, _ *http.Request) {
	measured, err := a.meter.read()
	if err != nil {
		failure.Write(w, err)
		return
	}
	writeJSON(w, measured)
}

func writeJSON(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		failure.Write(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body)
}
