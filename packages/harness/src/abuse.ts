// Programs that exhaust a sandbox's resources, and how that sandbox may end.
import { ENVD_PORT } from "@svc/contract/envd-http.ts";

export type Abuse = {
  /** Completes a sentence that begins with "a sandbox that". */
  readonly what: string;
  readonly command: string;
  readonly user?: "root" | "user";
  /** `lives`: a limit inside refuses the request. `may end`: the whole sandbox may die, but only for lack of memory. */
  readonly outcome: "lives" | "may end";
};

const python = (program: string) => `exec python3 - <<'END'\n${program}\nEND`;
/** Repeats the allocation until it is refused, then keeps everything it got. */
const takeAll = (setup: string, take: string) =>
  python(
    `import errno, os, socket, sys, time, ctypes, resource\n${setup}\nheld = []\nwhile True:\n  try:\n    held.append(${take})\n  except (OSError, MemoryError): time.sleep(0.05)`,
  );

export const abuses = {
  forks: { what: "forks without end", command: "bomb() { bomb | bomb & }; bomb; sleep 600", outcome: "may end" },
  rootForks: {
    what: "forks without end as root",
    command: python("import os, time\nwhile True:\n  try: os.fork()\n  except OSError: time.sleep(0.01)"),
    user: "root",
    outcome: "may end",
  },
  memory: { what: "takes memory without end", command: takeAll("", "bytearray(8 << 20)"), outcome: "may end" },
  memoryOfMany: {
    what: "takes memory without end in many processes",
    command: python(
      "import os, time\nfor i in range(40):\n  if os.fork() == 0:\n    held = []\n    while len(held) < 16: held.append(bytearray(1 << 20))\n    time.sleep(600)\ntime.sleep(600)",
    ),
    outcome: "may end",
  },
  sharedMemory: { what: "fills /dev/shm", command: "cat /dev/zero > /dev/shm/fill; sleep 600", outcome: "may end" },
  memoryFiles: {
    what: "fills every memory-backed directory as root",
    command: "for d in /run /dev /dev/shm; do cat /dev/zero > $d/fill & done; wait; sleep 600",
    user: "root",
    outcome: "may end",
  },
  disk: { what: "fills its disk", command: "cat /dev/zero > fill; cat /dev/zero > /tmp/fill; sleep 600", outcome: "lives" },
  inodes: {
    what: "makes files without end",
    command: python(
      "import os, time\nn = 0\nwhile True:\n  try:\n    if n % 1000 == 0: os.makedirs(f'many/{n // 1000}', exist_ok=True)\n    open(f'many/{n // 1000}/{n}', 'w').close(); n += 1\n  except OSError: time.sleep(0.05)",
    ),
    outcome: "may end",
  },
  output: { what: "writes output that nobody reads", command: "yes 'a line of a log that nobody reads' & yes 'and of its errors' >&2", outcome: "lives" },
  consoles: {
    what: "writes to consoles, the kernel's log and envd's own output as root",
    command: "for f in /dev/console /dev/kmsg /dev/tty /proc/1/fd/0 /proc/1/fd/1 /proc/1/fd/2; do (yes 'a line' > $f 2>/dev/null) & done; sleep 600",
    user: "root",
    outcome: "may end",
  },
  terminals: { what: "opens terminals without end", command: takeAll("", "os.openpty()"), outcome: "may end" },
  watches: {
    what: "opens inotify instances and watches without end",
    command: takeAll(
      "libc = ctypes.CDLL(None, use_errno=True)\nn = 0\ndef watch():\n  global n\n  n += 1\n  f = libc.inotify_init()\n  if f < 0: raise OSError('inotify')\n  os.makedirs(f'watched/{n % 500}', exist_ok=True)\n  for each in range(min(n, 500)): libc.inotify_add_watch(f, f'watched/{each}'.encode(), 0xfff)",
      "watch()",
    ),
    outcome: "may end",
  },
  rootWatches: {
    what: "opens inotify instances and watches without end as root",
    command: takeAll(
      "libc = ctypes.CDLL(None, use_errno=True)\nn = 0\ndef watch():\n  global n\n  n += 1\n  f = libc.inotify_init()\n  if f < 0: raise OSError('inotify')\n  os.makedirs(f'watched/{n % 500}', exist_ok=True)\n  for each in range(min(n, 500)): libc.inotify_add_watch(f, f'watched/{each}'.encode(), 0xfff)",
      "watch()",
    ),
    user: "root",
    outcome: "may end",
  },
  descriptors: { what: "opens files without end", command: takeAll("open('one', 'w').close()", "open('one')"), outcome: "may end" },
  sockets: {
    what: "opens sockets without end and fills their buffers",
    command: takeAll(
      "def pair():\n  a, b = socket.socketpair()\n  a.setblocking(False)\n  try:\n    while True: a.send(b'x' * 4096)\n  except BlockingIOError: pass\n  s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen(); return a, b, s",
      "pair()",
    ),
    outcome: "may end",
  },
  processor: {
    what: "computes in many threads",
    command: "for i in $(seq 64); do (while :; do :; done) & done; wait",
    outcome: "lives",
  },
  connections: {
    what: "holds every connection to its own envd",
    command: takeAll(
      "resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)",
      `socket.create_connection(('127.0.0.1', ${ENVD_PORT}), 5)`,
    ),
    outcome: "lives",
  },
  stopped: {
    what: "stops its own envd",
    command: 'sleep 1; kill -STOP 1; kill -STOP -1; python3 -c "import ctypes, time; ctypes.CDLL(None).ptrace(16, 1, 0, 0); time.sleep(600)"',
    user: "root",
    outcome: "lives",
  },
} satisfies Record<string, Abuse>;

export type AbuseName = keyof typeof abuses;

/** A server that answers every request with an endless body, as fast as it is read. */
export const endlessServer = `import http.server
class Endless(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Connection", "close"); self.end_headers()
        while True: self.wfile.write(b"x" * 65536)
    def log_message(self, *_): pass
class Server(http.server.ThreadingHTTPServer): request_queue_size = 128
Server(("127.0.0.1", 8095), Endless).serve_forever()`;
export const ENDLESS_PORT = 8095;
