# A file system over a folder that stops answering on request: every kernel call waits until "go", or gets EACCES.
#   python3 hanging-folder.py FOLDER MOUNTPOINT, then lines "hang", "refuse" and "go" on standard input; its end ends the file system.
import errno
import os
import sys
import threading

import fusepy as fuse

gate = threading.Event()
gate.set()
waiting = 0
refuses = False


class Passing(fuse.Operations):
    def __init__(self, root):
        self.root = root

    def __call__(self, op, path, *args):
        global waiting
        if op not in ("init", "destroy"):
            waiting += not gate.is_set()
            gate.wait()
            if refuses and op != "release":
                waiting += 1
                raise fuse.FuseOSError(errno.EACCES)
        return getattr(self, op)(self.root + path, *args)

    def init(self, _path):
        print("mounted", flush=True)

    def destroy(self, _path):
        pass

    def getattr(self, path, fh=None):
        found = os.fstat(fh) if fh else os.lstat(path)
        return {name: getattr(found, name) for name in ("st_atime", "st_ctime", "st_gid", "st_mode", "st_mtime", "st_nlink", "st_size", "st_uid", "st_blocks")}

    def access(self, path, mode):
        if not os.access(path, mode):
            raise fuse.FuseOSError(errno.EACCES)

    def readdir(self, path, _fh):
        return [".", "..", *os.listdir(path)]

    def statfs(self, path):
        found = os.statvfs(path)
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_") and name != "f_fsid"}

    def mkdir(self, path, mode):
        os.mkdir(path, mode)

    def rmdir(self, path):
        os.rmdir(path)

    def unlink(self, path):
        os.unlink(path)

    def rename(self, path, to):
        os.rename(path, self.root + to)

    def link(self, path, of):
        os.link(self.root + of, path)

    def chmod(self, path, mode):
        os.chmod(path, mode)

    def utimens(self, path, times=None):
        os.utime(path, times)

    def truncate(self, path, length, fh=None):
        os.truncate(fh or path, length)

    def open(self, path, flags):
        return os.open(path, flags & ~os.O_DIRECT)

    def create(self, path, mode, fi=None):
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def read(self, _path, size, offset, fh):
        return os.pread(fh, size, offset)

    def write(self, _path, data, offset, fh):
        return os.pwrite(fh, data, offset)

    def flush(self, _path, _fh):
        return 0

    def fsync(self, _path, dataonly, fh):
        os.fdatasync(fh) if dataonly else os.fsync(fh)

    def fsyncdir(self, _path, _dataonly, _fh):
        return 0

    def release(self, _path, fh):
        os.close(fh)


def obey():
    global waiting, refuses
    for line in sys.stdin:
        word = line.strip()
        if word != "go":
            waiting = 0
        refuses = word == "refuse"
        (gate.clear if word == "hang" else gate.set)()
        print(f"{word} {waiting}", flush=True)
    # Waiting calls get an error from the kernel.
    os._exit(0)


threading.Thread(target=obey, daemon=True).start()
fuse.FUSE(Passing(sys.argv[1].rstrip("/")), sys.argv[2], foreground=True, attr_timeout=0, entry_timeout=0)
