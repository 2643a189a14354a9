// Envd is the agent inside every sandbox: processes, files and terminals over HTTP, in one static binary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"svc/envd/internal/agent"
	"svc/envd/internal/attributes"
	"svc/envd/internal/process"
)

const (
	// Clients enable features by this version.
	version = "0.6.13"

	gcPercent      = 50
	memoryGoal     = 48 << 20 // a soft limit: the collector works harder above it
	headerBound    = 30 * time.Second
	idleBound      = 10 * time.Minute
	maxHeaderBytes = 64 << 10
	stopBound      = 5 * time.Second
	farewellBound  = 2 * time.Second
)

func main() {
	var addresses listenFlags
	flag.Var(&addresses, "listen", "`address` to listen on, host:port or unix:/path; may be given several times (default 0.0.0.0:49983)")
	initKey := flag.String("init-key", "", "`base64` of the node's raw Ed25519 public key; without it /init is refused")
	debugInit := flag.Bool("debug-init", false, "take /init without a signature when there is no -init-key; for a bare envd only")
	defaultUser := flag.String("default-user", "user", "`name` of the user a request without one acts for")
	metricsRoot := flag.String("metrics-root", "/", "`directory` whose file system /metrics measures")
	root := flag.String("root", "/", "`directory` that holds run/svc/generation and etc/svc/on-copy.d")
	listAttributes := flag.String("list-attributes", "", "read NUL-ended paths, print the extended attributes of those files below `directory`, and stop")
	applyAttributes := flag.String("apply-attributes", "", "read what -list-attributes printed, set it on the files below `directory`, and stop")
	showVersion := flag.Bool("version", false, "print the version and stop")
	flag.Parse()
	if *showVersion {
		fmt.Println(version)
		return
	}
	if flag.NArg() > 0 {
		fail("unexpected argument %q: envd takes flags only, see -help", flag.Arg(0))
	}
	if *listAttributes != "" || *applyAttributes != "" {
		if err := carryAttributes(*listAttributes, *applyAttributes); err != nil {
			fail("%v", err)
		}
		return
	}
	if *initKey != "" {
		closeInherited()
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryGoal)
	unix.Umask(0o022)
	slog.SetDefault(slog.New(slog.NewJSONHandler(os.Stderr, nil)))

	verifier, err := agent.NewVerifier(*initKey)
	if err != nil {
		fail("%v", err)
	}
	connected := newConnections()
	listeners, err := addresses.open(connected)
	if err != nil {
		fail("%v", err)
	}
	reaper := process.NewReaper()
	server := &http.Server{
		Handler: agent.New(agent.Options{
			Verifier: verifier, DefaultUser: *defaultUser, DebugInit: *debugInit, MetricsRoot: *metricsRoot, Reaper: reaper,
			Root: *root, Used: sync.OnceFunc(reserveThreads), EndOthers: connected.endOthers,
		}),
		ConnContext:       connected.carry,
		ReadHeaderTimeout: headerBound, IdleTimeout: idleBound, MaxHeaderBytes: maxHeaderBytes,
	}
	failed := make(chan error, len(listeners))
	for _, listener := range listeners {
		go func() { failed <- server.Serve(listener) }()
		slog.Info("listening", "address", listener.Addr().String(), "version", version)
	}
	if *initKey != "" {
		leaveOutput()
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err := <-failed:
		if !errors.Is(err, http.ErrServerClosed) {
			slog.Error("cannot serve", "error", err.Error())
			os.Exit(1)
		}
	case <-stop:
	}
	reaper.Stop(stopBound)
	// The streams of the ended processes report their end; other open ones (watches, relays) are cut.
	ctx, cancel := context.WithTimeout(context.Background(), farewellBound)
	defer cancel()
	_ = server.Shutdown(ctx)
	_ = server.Close()
}

func carryAttributes(from, to string) error {
	if from != "" {
		return attributes.List(from, os.Stdin, os.Stdout)
	}
	return attributes.Apply(to, os.Stdin)
}

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "envd: "+format+"\n", args...)
	os.Exit(2)
}
