# Runs inside a sandbox: tries to reach each target of the JSON list in the given file concurrently, and prints the results.
import concurrent.futures
import errno
import json
import random
import socket
import struct
import sys
import urllib.request

LIMIT = 4


def name_of(error):
    if isinstance(error, socket.gaierror):
        return f"unknown name {error.errno}"
    if isinstance(error, TimeoutError):
        return "timeout"
    return errno.errorcode.get(error.errno, str(error)) if isinstance(error, OSError) and error.errno else str(error)


def tcp(host, port):
    with socket.create_connection((host, port), timeout=LIMIT):
        return "connected"


def udp(host, port):
    family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, number) as sender:
        sender.settimeout(LIMIT)
        sender.connect(address)
        sender.send(b"hello")
        return f"answered {sender.recv(100).decode()}"


def url(address):
    # These spellings of an address need a URL parser.
    return f"answered {urllib.request.urlopen(address, timeout=LIMIT).status}"


def abstract(name):
    """Connects to an abstract unix socket. These belong to a network namespace, so the host's must be out of reach."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(LIMIT)
        end.connect(b"\0" + name.encode())
        return "connected"


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def packet(source, target, port, text):
    """Sends a datagram with a forged source address; a source of "" means the sandbox's own address."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sender:
        if source == "":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
                own.connect((target, port))
                source = own.getsockname()[0]
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
        body = text.encode()
        datagram = struct.pack("!HHHH", random.randint(20000, 60000), port, 8 + len(body), 0) + body
        ends = socket.inet_aton(source) + socket.inet_aton(target)
        datagram = datagram[:6] + struct.pack("!H", checksum(ends + struct.pack("!BBH", 0, 17, len(datagram)) + datagram)) + datagram[8:]
        header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(datagram), random.randint(1, 65535), 0, 64, 17, 0) + ends
        header = header[:10] + struct.pack("!H", checksum(header)) + header[12:]
        sender.sendto(header + datagram, (target, 0))
        return "sent"


def claim(address):
    """Broadcasts an ARP reply that claims the address."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as sender:
        sender.bind(("eth0", 0))
        mine = open("/sys/class/net/eth0/address").read().strip().split(":") if sys.argv[2:] == ["host-kernel"] else "02 00 00 00 00 01".split()
        mac = bytes(int(part, 16) for part in mine)
        owner = socket.inet_aton(address)
        reply = b"\xff" * 6 + mac + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, 2) + mac + owner + b"\xff" * 6 + owner
        sender.send(reply)
        return "sent"


def links():
    with open("/proc/net/unix") as known:
        return "\n".join(line.split()[-1] for line in known if "@" in line)


KINDS = {"tcp": tcp, "udp": udp, "url": url, "abstract": abstract, "packet": packet, "claim": claim, "links": links}


def attempt(target):
    try:
        return KINDS[target[0]](*target[1:])
    except Exception as error:
        return name_of(error)


with open(sys.argv[1]) as file:
    targets = json.load(file)
with concurrent.futures.ThreadPoolExecutor(32) as pool:
    print(json.dumps(list(pool.map(attempt, targets))))
