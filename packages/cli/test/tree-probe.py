"""A random tree of files, and a tree as text: `plant DIR SEED`, `describe DIR`. Runs on the host and in sandboxes."""
import hashlib
import os
import random
import stat
import sys


def plant(top, seed):
    rng = random.Random(seed)
    takes_attributes = True

    def name():
        # Names contain newlines, quotes, escapes and bytes that are not UTF-8: anything but NUL and the slash.
        raw = bytes(rng.choice([b for b in range(1, 256) if b != 47]) for _ in range(rng.randint(1, 12)))
        return b"dots" if raw in (b".", b"..") else raw

    os.mkdir(top)
    folders, files = [top], []
    for number in range(60):
        folder = rng.choice(folders)
        path = os.path.join(folder, b"%d" % number + name())
        kind = rng.randrange(6)
        if kind == 0:
            os.mkdir(path)
            folders.append(path)
        elif kind == 1:
            # Links stay inside the tree: downwards, or upwards by no more than the depth.
            depth = folder[len(top):].count(b"/")
            os.symlink(b"../" * rng.randint(0, depth) + rng.choice([b"there", b"not/there", b"./x"]), path)
        elif kind == 2 and files:
            os.link(rng.choice(files), path)
        else:
            with open(path, "wb") as out:
                out.write(rng.randbytes(rng.randrange(4000)))
                if rng.randrange(5) == 0:
                    out.seek(rng.randrange(2 << 20, 4 << 20))
                    out.write(b"after a hole")
                    out.truncate(out.tell() + rng.randrange(1 << 20))
            files.append(path)
    for path in files + folders:
        if takes_attributes and rng.randrange(3) == 0:
            try:
                os.setxattr(path, b"user.note\xff", rng.randbytes(20))
            except OSError:
                takes_attributes = False
        os.chmod(path, rng.randrange(0o1000) | (0o700 if os.path.isdir(path) else 0o400))
    for path in files + folders[::-1]:
        os.utime(path, ns=(0, rng.randrange(1_700_000_000_000_000_000)))


def line(path, name, numbers, with_attributes):
    info = os.lstat(path)
    words = [repr(name), stat.filemode(info.st_mode)]
    if not stat.S_ISLNK(info.st_mode):
        words.append(str(info.st_mtime_ns))
        if with_attributes:
            words += [f"{key!r}={os.getxattr(path, key)!r}" for key in sorted(os.listxattr(path)) if key.startswith("user.")]
    else:
        words.append(repr(os.readlink(path)))
    if stat.S_ISREG(info.st_mode):
        with open(path, "rb") as content:
            words.append(hashlib.sha256(content.read()).hexdigest())
        words.append(f"same as {numbers.setdefault(info.st_ino, name)!r}")
    return " ".join(words)


def describe(top, with_attributes):
    numbers, lines = {}, []
    for folder, below, files in os.walk(top):
        below.sort()
        lines.append(line(folder, folder[len(top):], numbers, with_attributes))
        for name in sorted(files) + [each for each in below if os.path.islink(os.path.join(folder, each))]:
            path = os.path.join(folder, name)
            lines.append(line(path, path[len(top):], numbers, with_attributes))
    return "\n".join(lines)


if sys.argv[1] == "plant":
    plant(os.fsencode(sys.argv[2]), int(sys.argv[3]))
else:
    print(describe(os.fsencode(sys.argv[2]), sys.argv[-1] != "--no-attributes"))
