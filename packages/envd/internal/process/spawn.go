package process

// Starts a program: its user, working directory, environment, and the descriptors between it and envd.

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"svc/envd/internal/account"
	"svc/envd/internal/failure"
)

const fallbackPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// launch is a program that is ready to run.
type launch struct {
	path string
	argv []string
	attr syscall.ProcAttr
}

func prepare(who account.Account, c *config, sandboxEnvs map[string]string, workdir string) (*launch, error) {
	if c == nil || c.Cmd == "" {
		return nil, failure.New(failure.InvalidArgument, "process.cmd is empty: name a program to run")
	}
	envs := environment(who, sandboxEnvs, c.Envs)
	if err := fits(c, envs); err != nil {
		return nil, err
	}
	l := &launch{argv: append([]string{c.Cmd}, c.Args...)}
	for name, value := range envs {
		l.attr.Env = append(l.attr.Env, name+"="+value)
	}
	slices.Sort(l.attr.Env)
	l.attr.Sys = &syscall.SysProcAttr{Setsid: true}
	if who.UID != os.Geteuid() {
		l.attr.Sys.Credential = &syscall.Credential{Uid: uint32(who.UID), Gid: uint32(who.GID), Groups: who.Groups}
	}
	err := who.Do(func() error {
		var err error
		if l.attr.Dir, err = directory(who, c.Cwd, workdir); err != nil {
			return err
		}
		l.path, err = find(c.Cmd, l.attr.Dir, envs["PATH"])
		return err
	})
	return l, err
}

// maxWordBytes is the kernel's MAX_ARG_STRLEN without the final NUL.
const maxWordBytes = 128<<10 - 1

// fits reports an argument that is too long for any kernel; gVisor's own error would complain about a file name.
func fits(c *config, envs map[string]string) error {
	const hint = "send it on stdin, or write it to a file first"
	for i, word := range append([]string{c.Cmd}, c.Args...) {
		if len(word) > maxWordBytes {
			return failure.New(failure.InvalidArgument, "cannot start '%.64s': argument list too long: argument %d has %d bytes, the maximum is %d: %s",
				c.Cmd, i, len(word), maxWordBytes, hint)
		}
	}
	for name, value := range envs {
		if size := len(name) + 1 + len(value); size > maxWordBytes {
			return failure.New(failure.InvalidArgument, "cannot start '%.64s': argument list too long: the variable %.64s has %d bytes, the maximum is %d: %s",
				c.Cmd, name, size, maxWordBytes, hint)
		}
	}
	return nil
}

// environment merges the variables, where later ones win; nothing else is inherited from envd.
func environment(who account.Account, sandbox, request map[string]string) map[string]string {
	path := os.Getenv("PATH")
	if path == "" {
		path = fallbackPath
	}
	envs := map[string]string{"PATH": path, "HOME": who.Home, "USER": who.Name, "LOGNAME": who.Name}
	for _, more := range []map[string]string{sandbox, request} {
		for name, value := range more {
			envs[name] = value
		}
	}
	return envs
}

// workdirOf ignores the default user's home for other users: a command of root starts in /root, to which root's relative file paths also refer.
func (d Defaults) workdirOf(who account.Account) string {
	if d.Workdir == "" || d.User == "" || who.Name == d.User {
		return d.Workdir
	}
	owner, err := account.Lookup(d.User)
	if err == nil && owner.UID != who.UID && filepath.Clean(d.Workdir) == filepath.Clean(owner.Home) {
		return ""
	}
	return d.Workdir
}

func directory(who account.Account, asked *string, workdir string) (string, error) {
	if asked == nil || *asked == "" {
		// A user without a home (nobody) can still run programs.
		for _, dir := range []string{workdir, who.Home} {
			if path, err := who.Resolve(dir); dir != "" && err == nil && enterable(path) == nil {
				return path, nil
			}
		}
		return "/", nil
	}
	path, err := who.Resolve(*asked)
	if err != nil {
		return "", err
	}
	if err := enterable(path); err != nil {
		return "", failure.New(failure.InvalidArgument, "cwd '%s' cannot be used by user '%s': %w", path, who.Name, err)
	}
	return path, nil
}

func enterable(path string) error {
	// O_PATH needs no right on the directory itself; "/." needs the right to enter it.
	fd, err := unix.Open(path+"/.", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// find searches the PATH that the program itself will have.
func find(cmd, dir, path string) (string, error) {
	candidates := []string{cmd}
	if !strings.Contains(cmd, "/") {
		candidates = nil
		for _, in := range filepath.SplitList(path) {
			candidates = append(candidates, filepath.Join(in, cmd))
		}
	}
	var last error = unix.ENOENT
	for _, candidate := range candidates {
		if !filepath.IsAbs(candidate) {
			candidate = filepath.Join(dir, candidate)
		}
		info, err := os.Stat(candidate)
		switch {
		case err != nil:
			if !os.IsNotExist(err) {
				last = err
			}
		case info.IsDir() || info.Mode()&0o111 == 0:
			last = unix.EACCES
		default:
			return candidate, nil
		}
	}
	if os.IsNotExist(last) {
		return "", failure.New(failure.InvalidArgument, "exec: \"%s\": executable file not found in PATH or at that path", cmd)
	}
	return "", failure.About(last, "exec: \"%s\"", cmd)
}

// wires are envd's ends of a child's descriptors.
type wires struct {
	stdin, stdout, stderr, tty *os.File
	theirs                     []int
}

func (w *wires) closeTheirs() {
	for _, fd := range w.theirs {
		_ = unix.Close(fd)
	}
}

func (w *wires) closeOurs() {
	for _, file := range []*os.File{w.stdin, w.stdout, w.stderr, w.tty} {
		if file != nil {
			_ = file.Close()
		}
	}
}

func (l *launch) wirePipes(who account.Account, withStdin bool) (*wires, error) {
	w := &wires{}
	in, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if withStdin {
		_ = unix.Close(in)
		w.stdin, in, err = pipe(true)
	}
	if err != nil {
		return nil, failure.About(err, "cannot open stdin")
	}
	w.theirs = []int{in}
	for _, ours := range []**os.File{&w.stdout, &w.stderr} {
		file, theirs, err := pipe(false)
		if err != nil {
			w.closeTheirs()
			w.closeOurs()
			return nil, failure.About(err, "cannot open a pipe")
		}
		*ours = file
		w.theirs = append(w.theirs, theirs)
	}
	for _, theirs := range w.theirs[1:] {
		// Programs that open /dev/stdout or /dev/stderr by name must own it.
		_ = unix.Fchown(theirs, who.UID, who.GID)
	}
	l.attr.Files = []uintptr{uintptr(w.theirs[0]), uintptr(w.theirs[1]), uintptr(w.theirs[2])}
	return w, nil
}

// pipe registers our end with the runtime's poller and leaves the child's end blocking, as programs expect.
func pipe(weWrite bool) (*os.File, int, error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	ours, theirs := ends[0], ends[1]
	if weWrite {
		ours, theirs = theirs, ours
	}
	_ = unix.SetNonblock(ours, true)
	return os.NewFile(uintptr(ours), "pipe"), theirs, nil
}

func (l *launch) wireTerminal(who account.Account, size *terminalSize) (*wires, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, failure.New(failure.ResourceExhausted, "cannot open a terminal: %w", err)
	}
	defer slave.Close()
	if size == nil {
		size = &terminalSize{Cols: 80, Rows: 24}
	}
	_ = resize(master, size)
	// Programs that open their terminal by name (tmux, gpg) must own it.
	_ = slave.Chown(who.UID, -1)
	fd, err := unix.FcntlInt(slave.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		_ = master.Close()
		return nil, failure.About(err, "cannot open a terminal")
	}
	l.attr.Files = []uintptr{uintptr(fd), uintptr(fd), uintptr(fd)}
	l.attr.Sys.Setctty = true
	return &wires{tty: master, theirs: []int{fd}}, nil
}

func resize(tty *os.File, size *terminalSize) error {
	const most = 1<<16 - 1
	return pty.Setsize(tty, &pty.Winsize{Cols: uint16(min(size.Cols, most)), Rows: uint16(min(size.Rows, most))})
}
