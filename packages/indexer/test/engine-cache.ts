// Compares the index with vLLM's own KVCacheManager, from its package: before each request, a query must answer what the engine would find
// cached.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { QueryAnswer } from "@svc/contract/indexer.ts";
import { endWithUs } from "@svc/harness/children.ts";
import { type NativeIndex, openIndex, outcomes } from "../src/index/native.ts";

const SCRIPT = fileURLToPath(new URL("./engine/cache.py", import.meta.url));
const ENGINE = process.env["SVC_PYTHON_ENGINE"] ?? "";
const CLIENTS = process.env["SVC_PYTHON_CLIENTS"] ?? "";

/** Says why the engine's classes cannot run here; CI must have them. */
export function needsEngine(): { skip: string | false } {
  if (existsSync(join(ENGINE, "vllm")) && existsSync(join(CLIENTS, "msgspec"))) return { skip: false };
  const says = "missing on this host: vLLM's Python files; ./svc setup installs them";
  if (process.env["CI"] === "true") throw new Error(says);
  return { skip: says };
}

export type EngineGroup = { kind: "full" | "mla" | "sliding" | "chunked" | "mamba"; window?: number; mode?: "all" | "align" };
export type EnginePlan = {
  seed: number;
  requests: number;
  groups: EngineGroup[];
  block_size?: number;
  blocks?: number;
  roots?: number;
  conversations?: number;
  most?: number;
  chunk?: number;
  running?: number;
  reset?: number;
};
/** `lost` counts batches that never arrived; `certain` and `reach` are tokens that the index answered, `engine` those that the engine had. */
export type Compared = { requests: number; hits: number; above: number; below: number; engine: number; certain: number; reach: number; lost: number };

const defaults = { block_size: 16, blocks: 300, roots: 4, conversations: 40, most: 640, chunk: 64, running: 3, reset: 0 };

type Step = { hit: number; prompt: Uint32Array; batch: Buffer };

export async function* engineSteps(plan: EnginePlan): AsyncGenerator<Step> {
  const child = spawn("python3", [SCRIPT, ENGINE, JSON.stringify({ ...defaults, ...plan })], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, PYTHONPATH: CLIENTS, PYTHONHASHSEED: "0" },
  });
  endWithUs(child);
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-4000);
  });
  const ended = once(child, "exit");
  let left = Buffer.alloc(0);
  for await (const chunk of child.stdout) {
    left = Buffer.concat([left, chunk as Buffer]);
    let at = 0;
    while (left.length - at >= 12) {
      const [hit, promptBytes, batchBytes] = [0, 4, 8].map((offset) => left.readUInt32LE(at + offset)) as [number, number, number];
      const end = at + 12 + promptBytes + batchBytes;
      if (left.length < end) break;
      const prompt = new Uint32Array(new Uint8Array(left.subarray(at + 12, at + 12 + promptBytes)).buffer);
      yield { hit, prompt, batch: Buffer.from(left.subarray(at + 12 + promptBytes, end)) };
      at = end;
    }
    left = left.subarray(at);
  }
  const [code] = (await ended) as [number | null];
  assert.equal(code, 0, said);
}

export type Loss = { at: number; batches: number };

/** Runs the plan without the batches in `losses`. */
export async function compareWithEngine(plan: EnginePlan, losses: readonly Loss[] = [], onMismatch?: (says: string) => void): Promise<Compared> {
  const blockSize = plan.block_size ?? defaults.block_size;
  const index: NativeIndex = openIndex(64 * 1024 * 1024, 1337n);
  const id = index.subscribe({
    instance: "e",
    tenant: "default",
    model: "m",
    lora: "",
    salt: "",
    key: "e",
    blockSize,
    rank: 0,
    store: 0,
    countsCopies: true,
  });
  const query = { tenant: "default", model: "m", lora: "", salt: "", blockSize, instance: "e" };
  const counts = new Uint32Array(outcomes.length);
  const compared: Compared = { requests: 0, hits: 0, above: 0, below: 0, engine: 0, certain: 0, reach: 0, lost: 0 };
  let sequence = 0;
  for await (const { hit, prompt, batch } of engineSteps(plan)) {
    const row = (JSON.parse(index.answer(query, prompt).toString()) as QueryAnswer)["default"]?.["e"];
    // The engine computes a prompt's last token in any case.
    const most = Math.floor((prompt.length - 1) / blockSize) * blockSize;
    const certain = Math.min(row?.longest_matched ?? 0, most);
    const reach = Math.min((row?.longest_matched ?? 0) + (row?.uncertain?.longest_matched ?? 0), most);
    compared.requests++;
    compared.engine += hit;
    compared.certain += certain;
    compared.reach += reach;
    if (hit > 0) compared.hits++;
    if (certain > hit) compared.above++;
    if (certain < hit) compared.below++;
    if (certain !== hit) onMismatch?.(`request ${compared.requests - 1} of ${prompt.length} tokens: the engine has ${hit}, the index says ${certain}`);
    const loss = losses.find(({ at, batches }) => sequence >= at && sequence < at + batches);
    if (loss !== undefined) {
      if (sequence === loss.at + loss.batches - 1) index.lose(id);
      compared.lost++;
    } else {
      let taken = index.apply(id, sequence, batch, counts, new Float64Array(1));
      while (taken === 2) taken = index.applyMore(id, counts);
      assert.equal(taken, 1);
    }
    sequence++;
  }
  return compared;
}
