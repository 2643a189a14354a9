# Mooncake's engine as a peer: commands as JSON lines on stdin, answers as JSON lines on stdout.
import ctypes, hashlib, json, os, sys

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # the engine logs to stdout too
from mooncake.engine import TransferEngine  # noqa: E402

engine = TransferEngine()
buffers = {}


def digest(address, length):
    return hashlib.sha256((ctypes.c_char * length).from_address(address)).hexdigest()


def run(c):
    op = c["op"]
    if op == "initialize":
        return engine.initialize(c["name"], c["metadata"], "tcp", "")
    if op == "port":
        return engine.get_rpc_port()
    if op == "register":
        memory = ctypes.create_string_buffer(c["length"])
        address = ctypes.addressof(memory)
        buffers[address] = memory
        code = engine.register_memory(address, c["length"])
        return {"code": code, "address": str(address)}
    if op == "fill":
        data = os.urandom(c["length"])
        ctypes.memmove(int(c["address"]), data, len(data))
        return hashlib.sha256(data).hexdigest()
    if op == "hash":
        return digest(int(c["address"]), c["length"])
    if op == "write":
        return engine.transfer_sync_write(c["target"], int(c["local"]), int(c["remote"]), c["length"])
    if op == "read":
        return engine.transfer_sync_read(c["target"], int(c["local"]), int(c["remote"]), c["length"])
    if op == "first":
        return str(engine.get_first_buffer_address(c["target"]))
    if op == "probe":
        return engine.send_probe(c["target"])
    if op == "write_notify":
        from mooncake.engine import TransferNotify, TransferOpcode
        return engine.transfer_sync(c["target"], int(c["local"]), int(c["remote"]), c["length"], TransferOpcode.Write, TransferNotify(c["name"], c["msg"]))
    if op == "notifies":
        return [[n.name, n.msg] for n in engine.get_notifies()]
    if op == "repeat":
        import time
        list_ = [int(c["local"]) + i * c["length"] for i in range(c["batch"])]
        remote = [int(c["remote"]) + i * c["length"] for i in range(c["batch"])]
        times, cpu = [], time.process_time()
        begun = time.perf_counter()
        for _ in range(c["rounds"]):
            t = time.perf_counter()
            if c.get("way") == "submit":
                # Like the specification's calls, the transfer is submitted and then polled until it ends.
                handle = engine.batch_transfer_async_write(c["target"], list_, remote, [c["length"]] * c["batch"])
                code = engine.get_batch_transfer_status([handle])
            elif c["batch"] == 1:
                code = engine.transfer_sync_write(c["target"], list_[0], remote[0], c["length"])
            else:
                code = engine.batch_transfer_sync_write(c["target"], list_, remote, [c["length"]] * c["batch"])
            times.append(time.perf_counter() - t)
            if code != 0:
                return {"code": code}
        times.sort()
        return {"code": 0, "seconds": time.perf_counter() - begun, "p50": times[len(times) // 2], "cpu": time.process_time() - cpu}
    if op == "cpu":
        import time
        return time.process_time()
    raise ValueError(op)


print(json.dumps("ready"), file=out)
for line in sys.stdin:
    try:
        answer = run(json.loads(line))
    except Exception as error:  # noqa: BLE001
        answer = {"error": repr(error)}
    print(json.dumps(answer), file=out)
os._exit(0)
