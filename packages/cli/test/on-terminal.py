# Runs a command on its own terminal: stdin is typed, stdout is the screen, SIGUSR1 makes it 40 rows by 120 columns.
import fcntl, os, pty, select, signal, struct, sys, termios


def size(rows, cols):
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


# The command waits until the size is set, so that it never sees another one.
ready, go = os.pipe()
pid, screen = pty.fork()
if pid == 0:
    os.close(go)
    os.read(ready, 1)
    os.execvp(sys.argv[1], sys.argv[1:])
size(30, 100)
os.write(go, b"x")
signal.signal(signal.SIGUSR1, lambda *_: size(40, 120))
sources = [screen, 0]
while screen in sources:
    for source in select.select(sources, [], [])[0]:
        try:
            data = os.read(source, 65536)
        except OSError:
            data = b""
        if not data:
            sources.remove(source)
        elif source == screen:
            os.write(1, data)
        else:
            os.write(screen, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
