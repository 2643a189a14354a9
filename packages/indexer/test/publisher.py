# A publisher like the engines': PUB with sequence numbers, a bounded buffer, a ROUTER that replays; controlled through stdin.
#
# The structures are written from the table of wire formats by release and encoded by msgspec, as the engines do it.
import json
import sys
import threading
import time
from typing import Any, Optional, Union

import msgspec
import zmq

Hash = Union[int, bytes]


class Batch(msgspec.Struct, array_like=True, omit_defaults=True):
    ts: float
    events: list
    data_parallel_rank: Optional[int] = None


def event(name, fields, array):
    """A struct of that name; a field is (name, type) or (name, type, default)."""
    return msgspec.defstruct(name, fields, tag=True, array_like=array, omit_defaults=True, gc=False)


def wire(array, stored, removed):
    return {
        "stored": event("BlockStored", stored, array),
        "removed": event("BlockRemoved", removed, array),
        "cleared": event("AllBlocksCleared", [], array),
    }


base = [("block_hashes", list), ("parent_block_hash", Any), ("token_ids", list), ("block_size", int), ("lora_id", Any)]
medium = [("medium", Any)]
medium_default = [("medium", Any, None)]
tail_20 = [("lora_name", Any), ("extra_keys", Any, None), ("group_idx", Any, None)]
tail_25 = tail_20 + [("kv_cache_spec_kind", Any, None), ("kv_cache_spec_sliding_window", Any, None)]
tail_30 = tail_25 + [("locality", Any, None), ("ownership", Any, None), ("session_id", Any, None)]
removed_25 = [("block_hashes", list), ("medium", Any), ("group_idx", Any, None)]
removed_30 = removed_25 + [("locality", Any, None), ("ownership", Any, None)]

WIRES = {
    "vllm-0.9": (wire(True, base, [("block_hashes", list)]), "A"),
    "sglang-0.4.8": (wire(True, base, [("block_hashes", list)]), "A"),
    "vllm-0.10.2": (wire(True, base + medium, [("block_hashes", list)] + medium), "A"),
    "sglang-0.5.9": (wire(True, base + medium_default, [("block_hashes", list)] + medium_default), "A"),
    "vllm-0.17.1": (wire(True, base + medium + tail_20[:2], [("block_hashes", list)] + medium), "A"),
    "vllm-0.20.2": (wire(True, base + medium + tail_20, removed_25), "A"),
    "vllm-0.25.1": (wire(False, base + medium + tail_25, removed_25), "A"),
    "vllm-0.30.0": (wire(False, base + medium + tail_30, removed_30), "B"),
    "vllm-0.33.0": (wire(False, base + medium + tail_30 + [("lookahead_token_ids", Any, None)], removed_30), "B"),
    "sglang-0.5.23": (
        wire(False, base + [("medium", Any, None), ("cache_salt", Any, None), ("session_id", Any, None), ("lora_name", Any, None)], [("block_hashes", list)] + medium_default),
        "B",
    ),
}


def build(kinds, description):
    """An event from JSON; hashes may be given as {"bin": hex}, whole events as {"raw": {...}}."""
    if "raw" in description:
        return description["raw"]
    struct = kinds[description.pop("kind")]
    names = struct.__struct_fields__
    values = {name: value for name, value in description.items() if name in names}
    for name in ("block_hashes", "parent_block_hash"):
        if name in values:
            values[name] = undigest(values[name])
    for name in names:
        if name not in values and name in struct.__struct_fields__[: len(names) - len(struct.__struct_defaults__)]:
            values[name] = None
    return struct(**values)


def generate(plan):
    """Batches of a plan: chains of 25 batches; every tenth batch also removes what the third before it stored."""
    blocks, size = plan["blocks"], plan["block_size"]
    name = lambda batch, block: plan["seed"] * 10**9 + batch * blocks + block + 1
    for batch in range(plan["batches"]):
        chain, place = divmod(batch, 25)
        start = plan["seed"] * 50_000_000 + chain * 100_000 + place * blocks * size
        names = [name(batch, block) for block in range(blocks)]
        parent = name(batch - 1, blocks - 1) if place else None
        tokens = list(range(start, start + blocks * size))
        events = [{"kind": "stored", "block_hashes": names, "parent_block_hash": parent, "token_ids": tokens, "block_size": size}]
        if batch % 10 == 9:
            events.append({"kind": "removed", "block_hashes": [name(batch - 3, block) for block in range(blocks)]})
        chance = (batch * 2654435761 + plan["seed"] * 40503) % 1000
        yield {"events": events, "drop": chance < 10 or (batch + 1 == plan["batches"] and plan["seed"] % 2 == 0), "twice": 10 <= chance < 20}


def undigest(value):
    if isinstance(value, list):
        return [undigest(one) for one in value]
    return bytes.fromhex(value["bin"]) if isinstance(value, dict) else value


def main():
    options = json.loads(sys.argv[1])
    kinds, shape = WIRES[options.get("wire", "vllm-0.33.0")]
    context = zmq.Context()
    pub = context.socket(zmq.PUB)
    pub.sndhwm = 0
    router = context.socket(zmq.ROUTER)
    router.sndhwm = 0
    if "connect" in options:
        pub.connect(options["connect"])
        port = 0
    else:
        port = options.get("port") or pub.bind_to_random_port("tcp://127.0.0.1")
        if options.get("port"):
            pub.bind(f"tcp://127.0.0.1:{port}")
    replay_port = options.get("replay_port") or router.bind_to_random_port("tcp://127.0.0.1")
    if options.get("replay_port"):
        router.bind(f"tcp://127.0.0.1:{replay_port}")
    topic = options.get("topic", "").encode()
    rank = options.get("rank")
    encoder = msgspec.msgpack.Encoder()
    buffer = []
    lock = threading.Lock()
    sequence = 0

    def serve():
        while True:
            frames = router.recv_multipart()
            # Like the engines, ignore everything that is not exactly identity, delimiter and number.
            if len(frames) != 3 or frames[1] != b"":
                continue
            start = int.from_bytes(frames[2], "big")
            with lock:
                kept = [entry for entry in buffer if entry[0] >= start]
            head = [b""] if shape == "A" else [b"", topic]
            for number, payload in kept:
                router.send_multipart([frames[0], *head, number.to_bytes(8, "big"), payload])
            router.send_multipart([frames[0], b"", *([b""] if shape == "B" else []), (-1).to_bytes(8, "big", signed=True), b""])

    threading.Thread(target=serve, daemon=True).start()
    print(json.dumps({"port": port, "replay_port": replay_port}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        for number, step in enumerate(generate(order["generate"]) if "generate" in order else order["batches"]):
            if "payload" in step:
                payload = bytes.fromhex(step["payload"])
            elif "zeros" in step:
                payload = bytes(step["zeros"])
            else:
                events = [build(kinds, one) for one in step["events"]]
                ts = step.get("ts", time.time())
                payload = encoder.encode([ts, events, 0] if step.get("master") else Batch(ts=ts, events=events, data_parallel_rank=step.get("rank", rank)))
            skipped = step.get("skip", 0)
            sequence += skipped
            frames = [topic, sequence.to_bytes(8, "big"), payload]
            with lock:
                buffer.append((sequence, payload))
                del buffer[: max(0, len(buffer) - options.get("buffer", 10000))]
            for _ in range(0 if step.get("drop") else 2 if step.get("twice") else 1):
                pub.send_multipart(frames)
            sequence += 1
        print(json.dumps({"sequence": sequence}), flush=True)


main()
