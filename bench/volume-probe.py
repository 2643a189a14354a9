# Reads and writes in one directory, from inside a sandbox; prints a JSON object of operations per second.
import json
import os
import sys
import time

folder, files, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
path = os.path.join(folder, "data")
SIZE = 64 << 20


def rate(work):
    end = time.perf_counter() + seconds
    begin = time.perf_counter()
    count = 0
    while time.perf_counter() < end:
        for _ in range(16):
            work(count)
            count += 1
    return count / (time.perf_counter() - begin)


def span(work):
    begin = time.perf_counter()
    work()
    return files / (time.perf_counter() - begin)


result = {}
with open(path, "wb") as file:
    for _ in range(SIZE >> 20):
        file.write(os.urandom(1 << 20))
handle = os.open(path, os.O_RDWR)
for name, size in (("4 KiB", 4096), ("1 MiB", 1 << 20)):
    block = os.urandom(size)
    places = SIZE // size
    # A step that is prime to the number of places visits all of them, out of order.
    result[f"{name} read"] = rate(lambda n: os.pread(handle, size, n * 7919 % places * size))
    result[f"{name} write"] = rate(lambda n: os.pwrite(handle, block, n * 7919 % places * size))
os.close(handle)
os.unlink(path)

names = [os.path.join(folder, f"d{n % 100}", f"f{n}") for n in range(files)]
for n in range(100):
    os.mkdir(os.path.join(folder, f"d{n}"))


def create():
    for name in names:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def walk():
    for root, _, entries in os.walk(folder):
        for entry in entries:
            os.stat(os.path.join(root, entry))


def change():
    for name in names:
        os.rename(name, name + "x")


def remove():
    for name in names:
        os.unlink(name + "x")


result["metadata: create"] = span(create)
result["metadata: list and stat"] = span(walk)
result["metadata: rename"] = span(change)
result["metadata: remove"] = span(remove)
for n in range(100):
    os.rmdir(os.path.join(folder, f"d{n}"))
print(json.dumps(result))
