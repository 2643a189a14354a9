# Drives vLLM's own KVCacheManager and BlockPool, from its package, like its scheduler does, and records what they find cached and which
# events they send.
#
# Arguments: the folder of the package, and a plan as JSON. Writes a record per request to stdout: the hit in tokens, the prompt, and the
# batch of events that the engine publishes before the next request comes, each with its length before it as a little-endian u32.
import json
import random
import struct
import sys
import types

import stand_ins

root, plan = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, root)
stand_ins.install(root)

import msgspec  # noqa: E402
import vllm.utils  # noqa: E402

vllm.utils.length_from_prompt_token_ids_or_embeds = lambda ids, _: len(ids)
from vllm.distributed.kv_events import KVEventBatch  # noqa: E402
from vllm.utils.hashing import sha256  # noqa: E402
from vllm.v1 import kv_cache_interface as specs  # noqa: E402
from vllm.v1.core.kv_cache_manager import KVCacheManager  # noqa: E402
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash  # noqa: E402
from vllm.v1.request import Request, RequestStatus  # noqa: E402

SIZE = plan["block_size"]
pooling = types.SimpleNamespace(skip_reading_prefix_cache=False)
rng = random.Random(plan["seed"])


def spec_of(group):
    attention = {"block_size": SIZE, "num_kv_heads": 1, "head_size": 16, "head_size_v": 16, "dtype": "float32"}
    kind = group["kind"]
    if kind == "full":
        return specs.FullAttentionSpec(**attention)
    if kind == "mla":
        return specs.MLAAttentionSpec(**attention)
    if kind == "sliding":
        return specs.SlidingWindowSpec(**attention, sliding_window=group["window"])
    if kind == "chunked":
        return specs.ChunkedLocalAttentionSpec(**attention, attention_chunk_size=group["window"])
    if kind == "mamba":
        return specs.MambaSpec(block_size=SIZE, shapes=((1,),), dtypes=("float32",), mamba_cache_mode=group.get("mode", "all"))
    raise ValueError(kind)


groups = [specs.KVCacheGroupSpec([f"layer.{i}"], spec_of(group)) for i, group in enumerate(plan["groups"])]
config = specs.KVCacheConfig(num_blocks=plan["blocks"], kv_cache_tensors=[], kv_cache_groups=groups)
init_none_hash(sha256)
hasher = get_request_block_hasher(SIZE, sha256)
manager = KVCacheManager(
    config, max_model_len=8192, scheduler_block_size=SIZE, hash_block_size=SIZE, enable_caching=True, enable_kv_cache_events=True
)
encoder = msgspec.msgpack.Encoder()

# Prompts are paths in a tree: conversations that share their beginnings.
roots = [[rng.randrange(1 << 31) for _ in range(SIZE * rng.randrange(1, 6))] for _ in range(plan["roots"])]
known = list(roots)
running = []


def prompt():
    base = rng.choice(known)
    if rng.random() < 0.3:
        base = base[: rng.randrange(len(base)) + 1]
    # Every other prompt ends with a full block, whose last token is computed again next to the existing block.
    more = SIZE * rng.randrange(0, 4) if rng.random() < 0.5 else rng.randrange(0, 3 * SIZE)
    made = base + [rng.randrange(1 << 31) for _ in range(more)]
    if rng.random() < 0.3:
        made = made[: max(1, len(made) // SIZE * SIZE)]
    if len(made) < plan["most"]:
        known.append(made)
        if len(known) > plan["conversations"]:
            known.pop(rng.randrange(len(known)))
    return made[: plan["most"]]


def step(entry):
    """Computes the next chunk of a prompt; returns False if the prompt is done or no blocks are free."""
    request, new, blocks = entry
    manager.new_step_starts()
    left = request.num_tokens - request.num_computed_tokens - new
    count = min(left, plan["chunk"])
    given = manager.allocate_slots(request, count, new, blocks)
    if given is None:
        return False
    request.num_computed_tokens += new + count
    entry[1], entry[2] = 0, None
    return request.num_computed_tokens < request.num_tokens


def finish(entry):
    entry[0].status = RequestStatus.FINISHED_STOPPED
    manager.free(entry[0])
    running.remove(entry)


out = sys.stdout.buffer
for number in range(plan["requests"]):
    tokens = prompt()
    request = Request(str(number), tokens, None, pooling, block_hasher=hasher)
    blocks, hit, *_ = manager.get_computed_blocks(request)
    entry = [request, hit, blocks]
    running.append(entry)
    if not step(entry) and entry in running and request.num_computed_tokens < request.num_tokens:
        # There is no free block, so the oldest requests give way.
        while len(running) > 1:
            finish(running[0])
        entry[2], entry[1], *_ = manager.get_computed_blocks(request)
        step(entry)
    for other in list(running):
        if other[0].num_computed_tokens >= other[0].num_tokens:
            if rng.random() < 0.5:
                finish(other)
        elif not step(other) and other[0].num_computed_tokens < other[0].num_tokens:
            finish(other)
    while len(running) > plan["running"]:
        finish(running[0])
    if plan.get("reset", 0) and rng.random() < plan["reset"]:
        while running:
            finish(running[0])
        manager.reset_prefix_cache()
    payload = encoder.encode(KVEventBatch(ts=1.5, events=manager.take_events(), data_parallel_rank=0))
    packed = struct.pack(f"<{len(tokens)}I", *tokens)
    out.write(struct.pack("<III", hit, len(packed), len(payload)) + packed + payload)
out.flush()
