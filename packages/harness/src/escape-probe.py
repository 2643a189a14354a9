# Runs inside a sandbox: attempts possible ways out, and prints the result of each as JSON.
import ctypes
import errno
import json
import os
import socket
import struct
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
# x86_64 and aarch64.
ARM = os.uname().machine == "aarch64"
NUMBERS = {
    name: pair[ARM]
    for name, pair in {
        "ptrace": (101, 117), "unshare": (272, 97), "setns": (308, 268), "init_module": (175, 105), "finit_module": (313, 273),
        "delete_module": (176, 106), "kexec_load": (246, 104), "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217),
        "keyctl": (250, 219), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "open_by_handle_at": (304, 265), "reboot": (169, 142),
        "swapon": (167, 224), "syslog": (103, 116), "settimeofday": (164, 170), "process_vm_readv": (310, 270), "pivot_root": (155, 41),
        "socket": (41, 198), "acct": (163, 89), "quotactl": (179, 60), "fsopen": (430, 430), "open_tree": (428, 428), "iopl": (172, -1), "fanotify_init": (300, 262),
    }.items()
}  # fmt: skip
NAMESPACES = {"mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
HOST_DEVICES = {"sda": ("b", 8, 0), "vda": ("b", 254, 0), "loop0": ("b", 7, 0), "mem": ("c", 1, 1), "port": ("c", 1, 4), "kmsg": ("c", 1, 11), "kvm": ("c", 10, 232)}
results = {}


class Denied(Exception):
    pass


def call(name, *arguments):
    ctypes.set_errno(0)
    value = libc.syscall(NUMBERS[name], *[ctypes.c_long(each) if isinstance(each, int) else each for each in arguments])
    if value == -1:
        raise OSError(ctypes.get_errno(), name)
    return value


def attempt(name, work):
    """Runs an attempt in a child process, so that its changes do not affect the next attempt."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = f"done {work()}"
        except OSError as error:
            said = errno.errorcode.get(error.errno, str(error))
        except Denied as error:
            said = f"denied {error}"
        except Exception as error:
            said = f"denied {type(error).__name__} {error}"
        os.write(writing, said.encode()[:400])
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    results[name] = said or f"ended by {status}"


def read(path):
    found = os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(64)
    if len(found) == 0:
        raise Denied("nothing is in it")
    return found


def write_to(path, text):
    def work():
        with open(path, "r+b", buffering=0) as file:
            return file.write(text)

    return work


def open_device(kind, major, minor):
    def work():
        path = tempfile.mktemp(dir="/var/tmp")
        mode = 0o600 | (0o060000 if kind == "b" else 0o020000)
        os.mknod(path, mode, os.makedev(major, minor))
        try:
            with open(path, "rb", buffering=0) as device:
                return device.read(16).hex()
        finally:
            os.unlink(path)

    return work


def mount(source, kind, flags=0, data=None):
    def work():
        target = tempfile.mkdtemp(dir="/var/tmp")
        if libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode() if data else None) != 0:
            raise OSError(ctypes.get_errno(), "mount")
        return sorted(os.listdir(target))[:8]

    return work


def enter(kind):
    def work():
        with open(f"/proc/1/ns/{kind}") as namespace:
            call("setns", namespace.fileno(), 0)

    return work


def release_agent():
    for root, _, files in os.walk("/sys/fs/cgroup"):
        for name in files:
            if name in ("release_agent", "notify_on_release", "cgroup.procs", "devices.allow", "memory.max", "memory.limit_in_bytes"):
                write_to(os.path.join(root, name), b"1\n")()
                return os.path.join(root, name)
    raise Denied("no control group in sight")


def trace_first():
    """Attaches with PTRACE_SEIZE, which does not stop the target, so that envd continues even if this is allowed."""
    call("ptrace", 0x4206, 1, 0, 0)
    return "attached to pid 1"


def read_first():
    """Reads eight bytes of envd's program code."""
    buffer = ctypes.create_string_buffer(8)
    mine = struct.pack("QQ", ctypes.addressof(buffer), 8)
    with open("/proc/1/maps") as maps:
        theirs = struct.pack("QQ", int(maps.readline().split("-")[0], 16), 8)
    call("process_vm_readv", 1, ctypes.create_string_buffer(mine), 1, ctypes.create_string_buffer(theirs), 1, 0)
    return buffer.raw.hex()


def in_own_namespaces(work):
    """Runs `work` in a new user namespace, whose creator is root in it."""
    def inside():
        call("unshare", NAMESPACES["user"] | NAMESPACES["mount"])
        return work()

    return inside


def kernel_addresses():
    with open("/proc/kallsyms") as symbols:
        first = symbols.readline().split()[0]
    if int(first, 16) == 0:
        raise Denied("the addresses are hidden")
    return first


def handle():
    """Opens an inode of the host by its number, a classic escape from containers; 2 is the root directory."""
    raw = struct.pack("IiQ", 8, 1, 2)
    with open("/") as root:
        return call("open_by_handle_at", root.fileno(), ctypes.create_string_buffer(raw), os.O_RDONLY)


def netlink_owner():
    """Adds a network interface, which only the owner of the network namespace may do."""
    import subprocess

    done = subprocess.run(["ip", "link", "add", "probe0", "type", "dummy"], capture_output=True, text=True)
    if done.returncode != 0:
        raise Denied(done.stderr.strip())


def open_socket(family, address=None, high=0):
    """Opens a socket of a family outside the network namespace. `high` sets the upper half of the number, which the kernel ignores."""
    def work():
        file = call("socket", family | high << 32, socket.SOCK_STREAM if address else socket.SOCK_RAW, 0)
        if address:
            with socket.socket(fileno=file, family=family, type=socket.SOCK_STREAM) as end:
                end.bind(address)
        return "opened"

    return work


def attempts():
    for high in (0, 1):
        attempt(f"socket vsock {high}", open_socket(40, (0xFFFFFFFF, 40_000 + os.getpid() % 20_000), high))
    for name, family, kind in (("alg", 38, 5), ("tipc", 30, 5), ("rds", 21, 5), ("xdp", 44, 3), ("bluetooth", 31, 3), ("can", 29, 3), ("kcm", 41, 5)):
        attempt(f"socket {name}", lambda family=family, kind=kind: call("socket", family, kind, 0))
    for path in (
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/kernel/panic", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/module/kernel/parameters/panic",
        "/proc/irq/default_smp_affinity", "/proc/sys/fs/binfmt_misc/register", "/proc/1/oom_score_adj",
    ):  # fmt: skip
        attempt(f"write {path}", write_to(path, b"1"))
    for name, (kind, major, minor) in HOST_DEVICES.items():
        attempt(f"device {name}", open_device(kind, major, minor))
    for path in ("/dev/mem", "/dev/kmsg", "/dev/sda", "/proc/kcore", "/sys/kernel/debug", "/sys/firmware/dmi/tables/DMI"):
        attempt(f"read {path}", lambda path=path: read(path))
    attempt("read kernel addresses", kernel_addresses)
    for source, kind, flags in (
        ("/dev/sda1", "ext4", 0), ("cgroup", "cgroup", 0), ("cgroup2", "cgroup2", 0), ("proc", "proc", 0), ("sysfs", "sysfs", 0),
        ("debugfs", "debugfs", 0), ("tmpfs", "tmpfs", 0), ("/", "bind", 4096), ("devtmpfs", "devtmpfs", 0), ("tracefs", "tracefs", 0),
    ):  # fmt: skip
        attempt(f"mount {kind}", mount(source, kind, flags))
    attempt("device sda in a user namespace", in_own_namespaces(open_device(*HOST_DEVICES["sda"])))
    attempt("device mem in a user namespace", in_own_namespaces(open_device(*HOST_DEVICES["mem"])))
    attempt("mount ext4 in a user namespace", in_own_namespaces(mount("/dev/sda1", "ext4")))
    attempt("mount debugfs in a user namespace", in_own_namespaces(mount("debugfs", "debugfs")))
    attempt("umount /proc", lambda: libc.umount2(b"/proc", 2) == 0 or (_ for _ in ()).throw(OSError(ctypes.get_errno(), "umount")))
    attempt("remount /sys", lambda: libc.mount(b"", b"/sys", b"", 32, None) == 0 or (_ for _ in ()).throw(OSError(ctypes.get_errno(), "mount")))
    for name, flag in NAMESPACES.items():
        attempt(f"unshare {name}", lambda flag=flag: call("unshare", flag))
    for name in ("mnt", "net", "pid", "user", "uts", "ipc", "cgroup"):
        attempt(f"setns {name}", enter(name))
    buffer = ctypes.create_string_buffer(256)
    attempt("ptrace pid 1", trace_first)
    attempt("process_vm_readv pid 1", read_first)
    attempt("init_module", lambda: call("init_module", buffer, 256, b""))
    attempt("finit_module", lambda: call("finit_module", 0, b"", 0))
    attempt("delete_module", lambda: call("delete_module", b"loop", 0))
    attempt("kexec_load", lambda: call("kexec_load", 0, 0, 0, 0))
    attempt("bpf map", lambda: call("bpf", 0, ctypes.create_string_buffer(struct.pack("IIIII", 2, 4, 4, 1, 0).ljust(128, b"\0")), 128))
    attempt("perf", lambda: call("perf_event_open", ctypes.create_string_buffer(struct.pack("II", 1, 112).ljust(112, b"\0")), 0, -1, -1, 0))
    attempt("add_key", lambda: call("add_key", b"user", b"probe", b"x", 1, -3))
    attempt("keyctl session", lambda: call("keyctl", 1, 0, 0, 0, 0))
    attempt("userfaultfd", lambda: call("userfaultfd", 0))
    attempt("io_uring", lambda: call("io_uring_setup", 8, buffer))
    attempt("file handle", handle)
    attempt("reboot", lambda: call("reboot", -18751827, 672274793, 0, 0))
    attempt("swapon", lambda: call("swapon", b"/dev/sda", 0))
    attempt("kernel log", lambda: call("syslog", 3, buffer, 256))
    attempt("kernel log clear", lambda: call("syslog", 5, 0, 0))
    attempt("set clock", lambda: call("settimeofday", ctypes.create_string_buffer(struct.pack("qq", 1, 0)), 0))
    attempt("pivot_root", lambda: call("pivot_root", b"/", b"/"))
    attempt("acct", lambda: call("acct", 0))
    attempt("quotactl", lambda: call("quotactl", 0x800002 << 8, b"/dev/sda", 0, buffer))
    attempt("fsopen", lambda: call("fsopen", b"proc", 0))
    attempt("open_tree", lambda: call("open_tree", -100, b"/", 1))
    attempt("fanotify", lambda: call("fanotify_init", 0, 0))
    attempt("iopl", lambda: call("iopl", 3))
    attempt("release_agent", release_agent)
    attempt("netlink", netlink_owner)
    attempt("raise limits", lambda: __import__("resource").setrlimit(7, (10_000_000, 10_000_000)))
    attempt("nice", lambda: os.nice(-20))


attempts()
print(json.dumps(results))
