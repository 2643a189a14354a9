"""What programs meet in this kernel: prints a JSON object of short answers. docs/gvisor.md is compared with it."""
import ctypes
import errno
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
MIB = 1 << 20
PAGE = mmap.PAGESIZE


def said(call):
    """"works", or the name of the error."""
    try:
        call()
        return "works"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))


def syscall(number, *arguments):
    def call():
        ctypes.set_errno(0)
        result = libc.syscall(number, *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "")
        return result

    return call


def opened(number, *arguments):
    """Like `syscall`, for calls that return a descriptor, which is closed."""
    return lambda: os.close(syscall(number, *arguments)())


def sparse(folder):
    with open(os.path.join(folder, "sparse"), "wb") as out:
        out.truncate(64 * MIB)
        out.seek(32 * MIB)
        out.write(b"x")
        out.flush()
        os.fsync(out.fileno())
        return "its size" if os.fstat(out.fileno()).st_blocks * 512 >= 64 * MIB else "its data"


def punch(folder):
    keep_size, punch_hole = 1, 2
    with open(os.path.join(folder, "punched"), "wb") as out:
        out.write(bytes(MIB))
        out.flush()
        fd = out.fileno()
        number = ctypes.c_long
        return said(syscall(285, fd, keep_size | punch_hole, number(0), number(MIB)))


def seek_data(folder):
    with open(os.path.join(folder, "sought"), "wb") as out:
        out.write(b"x" * PAGE)
        out.flush()
        return said(lambda: os.lseek(out.fileno(), 0, os.SEEK_DATA))


def set_value(name, value):
    def call():
        fd = os.open("/proc/sys/" + name, os.O_WRONLY)
        try:
            os.write(fd, value)
        finally:
            os.close(fd)

    return said(call)


def read_value(name):
    return said(lambda: open("/proc/sys/" + name).read())


def netlink(protocol):
    return said(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol).close())


def load_average():
    # A kernel that does not count the load reports 0.00 even on a busy machine.
    return "always 0" if open("/proc/loadavg").read().startswith("0.00 0.00 0.00 ") else "counted"


def long_argument():
    try:
        subprocess.run(["/bin/true", "x" * (128 * 1024)], check=True)
        return "works"
    except OSError as error:
        return errno.errorcode[error.errno]


def nameless_file(folder):
    def call():
        flags = os.O_TMPFILE | os.O_RDWR
        os.close(os.open(folder, flags, 0o600))

    return said(call)


def exchange(folder):
    for name in ("left", "right"):
        open(os.path.join(folder, name), "w").close()
    at = [os.path.join(folder, name).encode() for name in ("left", "right")]
    return said(syscall(316, -100, at[0], -100, at[1], 2))


def mount_tmpfs(folder):
    at = os.path.join(folder, "mounted")
    os.mkdir(at)

    def call():
        if libc.mount(b"tmpfs", at.encode(), b"tmpfs", 0, None) != 0:
            raise OSError(ctypes.get_errno(), "")
        libc.umount2(at.encode(), 2)

    return said(call)


def probe():
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        zeros = ctypes.create_string_buffer(512)
        return {
            "sparse-du": sparse(folder),
            "punch-hole": punch(folder),
            "seek-data": seek_data(folder),
            "tmpfile": nameless_file(folder),
            "rename-exchange": exchange(folder),
            "sysctl-read": read_value("vm/swappiness"),
            "sysctl-write": set_value("net/core/somaxconn", b"1024"),
            "loadavg": load_average(),
            "sock-diag": netlink(4),
            "netlink-route": netlink(0),
            "netlink-netfilter": netlink(12),
            "long-argument": long_argument(),
            "mount-tmpfs": mount_tmpfs(folder),
            "io-uring": said(opened(425, 4, zeros)),
            "userfaultfd": said(opened(323, 0x80000)),
            "fanotify": said(opened(300, 0, 0)),
            "perf": said(opened(298, zeros, 0, -1, -1, 0)),
            "bpf": said(opened(321, 0, zeros, 0)),
            "setfsuid": "works" if syscall_works(122, 0) else "ENOSYS",
            "keyrings": said(syscall(250, 0, -3, 0)),
            "landlock": said(syscall(444, None, 0, 1)),
            "dmesg": "works" if libc.klogctl(10, None, 0) >= 0 else errno.errorcode[ctypes.get_errno()],
            "raw-socket": said(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()),
            "packet-socket": said(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()),
            "user-namespace": said_in_child(0x10000000),
            "network-namespace": said_in_child(0x40000000),
            "kvm": "there" if os.path.exists("/dev/kvm") else "absent",
            "fuse": "there" if os.path.exists("/dev/fuse") else "absent",
            "huge-pages": said(lambda: mmap.mmap(-1, 2 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000).close()),
        }


def syscall_works(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(number, *arguments)
    return ctypes.get_errno() != errno.ENOSYS


def said_in_child(namespace):
    """Calls unshare in a child process, since it would change this one."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if libc.unshare(namespace) == 0 else ctypes.get_errno())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "works" if code == 0 else errno.errorcode.get(code, str(code))


if __name__ == "__main__":
    print(json.dumps(probe(), indent=1))
