# Mooncake's store client as a process of its own: one JSON line per command, one JSON line per answer.
import base64, ctypes, hashlib, json, os, sys

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # the client logs to stdout too
from mooncake.store import MooncakeDistributedStore, ReplicateConfig  # noqa: E402

store = MooncakeDistributedStore()
buffers = {}


def decoded(value):
    if isinstance(value, dict):
        if "bytes" in value:
            return base64.b64decode(value["bytes"])
        if "buffer" in value:
            return ctypes.addressof(buffers[value["buffer"]]) + value.get("at", 0)
        if "config" in value:
            config = ReplicateConfig()
            for name, given in value["config"].items():
                if name == "soft_pin_action":
                    given = type(config.soft_pin_action)(given)
                setattr(config, name, given)
            return config
        if "tuple" in value:
            return tuple(decoded(each) for each in value["tuple"])
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return value


def encoded(value):
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, (list, tuple)):
        return [encoded(each) for each in value]
    if isinstance(value, dict):
        return {str(key): encoded(each) for key, each in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "size") and callable(value.size):
        return {"bytes": base64.b64encode(bytes(value)).decode()}
    return repr(value)


def timed(command):
    # Runs puts, gets or probes from several threads in one process; returns the rate per second.
    import threading, time

    value = os.urandom(command["length"])
    each = command["count"] // command["threads"]
    wrong = []

    def work(thread):
        for i in range(each):
            key = f"{command['prefix']}-{thread}-{i}"
            if command["what"] == "put":
                good = store.put(key, value) == 0
            elif command["what"] == "get":
                good = len(store.get(key)) == len(value)
            elif command["what"] == "exist":
                good = store.is_exist(key) == 1
            else:
                good = all(x == 1 for x in store.batch_is_exist([f"{command['prefix']}-{thread}-{(i + j) % each}" for j in range(100)]))
            if not good:
                wrong.append(key)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(command["threads"])]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"perSecond": each * command["threads"] / (time.perf_counter() - begun), "wrong": len(wrong)}


def measured(command):
    # Runs sequential zero-copy calls in one thread; returns the rate per second and the median in microseconds.
    import time

    area = ctypes.addressof(buffers[command["buffer"]])
    what, length, batch = command["what"], command["length"], command["batch"]
    places, lengths = [area + i * length for i in range(batch)], [length] * batch
    times, wrong, begun = [], 0, time.perf_counter()
    for i in range(command["count"]):
        keys = [f"{command['prefix']}-{i}-{j}" for j in range(batch)]
        at = time.perf_counter()
        if what == "put":
            good = store.put_from(keys[0], area, length) == 0 if batch == 1 else all(x == 0 for x in store.batch_put_from(keys, places, lengths))
        else:
            good = store.get_into(keys[0], area, length) == length if batch == 1 else all(x == length for x in store.batch_get_into(keys, places, lengths))
        times.append(time.perf_counter() - at)
        wrong += not good
    return {"perSecond": command["count"] / (time.perf_counter() - begun), "p50": sorted(times)[len(times) // 2] * 1e6, "wrong": wrong}


def paced(command):
    # Puts with a short sleep between them, for some seconds; returns the longest duration, the failures and the count.
    import time

    value = os.urandom(command["length"])
    longest, failed, count, end = 0, 0, 0, time.perf_counter() + command["seconds"]
    while time.perf_counter() < end:
        at = time.perf_counter()
        failed += store.put(f"{command['prefix']}-{count}", value) != 0
        longest = max(longest, time.perf_counter() - at)
        count += 1
        time.sleep(command["everyMs"] / 1000)
    return {"longestMs": longest * 1000, "failed": failed, "count": count}


def run(command):
    op = command["op"]
    if op == "call":
        return encoded(getattr(store, command["name"])(*[decoded(each) for each in command["args"]]))
    if op == "allocate":
        buffers[command["buffer"]] = ctypes.create_string_buffer(command["length"])
        return store.register_buffer(ctypes.addressof(buffers[command["buffer"]]), command["length"])
    if op == "fill":
        data = os.urandom(command["length"])
        ctypes.memmove(ctypes.addressof(buffers[command["buffer"]]) + command.get("at", 0), data, len(data))
        return hashlib.sha256(data).hexdigest()
    if op == "hash":
        at = ctypes.addressof(buffers[command["buffer"]]) + command.get("at", 0)
        return hashlib.sha256((ctypes.c_char * command["length"]).from_address(at)).hexdigest()
    if op == "timed":
        return timed(command)
    if op == "measured":
        return measured(command)
    if op == "paced":
        return paced(command)
    raise ValueError(op)


print(json.dumps("ready"), file=out)
for line in sys.stdin:
    try:
        answer = run(json.loads(line))
    except Exception as error:  # noqa: BLE001
        answer = {"error": repr(error)}
    print(json.dumps(answer), file=out)
os._exit(0)
