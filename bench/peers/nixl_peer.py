# NIXL as a peer of the transfer bench: commands as JSON lines on stdin, answers as JSON lines on stdout. Both sides are processes of this kind.
import ctypes
import json
import os
import sys
import time

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # the library may log to stdout
from nixl_cu12._api import nixl_agent, nixl_agent_config  # noqa: E402

agent = None
memory = None
held = []


def descriptors(address, length, batch):
    return agent.get_xfer_descs([(address + i * length, length, 0) for i in range(batch)], "DRAM")


def transfer(handle):
    state = agent.transfer(handle)
    while state == "PROC":
        state = agent.check_xfer_state(handle)
    if state != "DONE":
        raise RuntimeError(f"the transfer ended as {state}")


def run(c):
    global agent, memory
    op = c["op"]
    if op == "start":
        agent = nixl_agent(c["name"], nixl_agent_config(backends=["UCX"]))
        memory = ctypes.create_string_buffer(os.urandom(c["length"]), c["length"])
        held.append(agent.register_memory([(ctypes.addressof(memory), c["length"], 0, "")], "DRAM"))
        return {"address": str(ctypes.addressof(memory)), "metadata": agent.get_agent_metadata().hex()}
    if op == "connect":
        return agent.add_remote_agent(bytes.fromhex(c["metadata"])).decode()
    if op == "repeat":
        # The transfers are prepared before the clock starts, like our lists of ranges.
        span = c["length"] * c["batch"]
        places = min(c["area"] // span, 64)
        handles = []
        for place in range(places):
            local = descriptors(ctypes.addressof(memory) + place * span, c["length"], c["batch"])
            remote = descriptors(int(c["remote"]) + place * span, c["length"], c["batch"])
            handles.append(agent.initialize_xfer("WRITE", local, remote, c["target"]))
        for handle in handles:
            transfer(handle)
        times, begun = [], time.perf_counter()
        while time.perf_counter() - begun < c["seconds"]:
            at = time.perf_counter()
            transfer(handles[len(times) % places])
            times.append(time.perf_counter() - at)
        took = time.perf_counter() - begun
        for handle in handles:
            agent.release_xfer_handle(handle)
        times.sort()
        return {"perSecond": len(times) * c["batch"] / took, "p50": times[len(times) // 2]}
    if op == "bytes":
        return ctypes.string_at(ctypes.addressof(memory) + c["at"], c["length"]).hex()
    raise ValueError(op)


print(json.dumps("ready"), file=out)
for line in sys.stdin:
    try:
        answer = run(json.loads(line))
    except Exception as error:  # noqa: BLE001
        answer = {"error": repr(error)}
    print(json.dumps(answer), file=out)
os._exit(0)
