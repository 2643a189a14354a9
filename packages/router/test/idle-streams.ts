// Streams that wait for their next token: an engine in a process of its own, and clients that are many.
import { spawn } from "node:child_process";
import { Agent, type ClientRequest, request } from "node:http";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { endProcess } from "@svc/harness/server-process.ts";
import { chat, metric, until } from "./stack.ts";

const ENGINE = fileURLToPath(new URL("./idle-engine.ts", import.meta.url));
const PROMPT = "x".repeat(4_000);
/** Connections come as fast as they are answered, not faster than a listener takes them. */
const AT_ONCE = 200;

export async function idleEngine() {
  const child = spawn(process.execPath, [ENGINE], { stdio: ["ignore", "pipe", "inherit"] });
  endWithUs(child);
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.once("data", (line: Buffer) => resolve(/http:\S+/.exec(line.toString())?.[0] ?? ""));
    child.once("exit", (code) => reject(new Error(`the engine ended with ${code}`)));
  });
  const seen = async () => (await (await fetch(`${url}/seen`)).json()) as { open: number; endlessBytes: number };
  return {
    name: "idle",
    url,
    /** Streams that have not ended. */
    open: async () => (await seen()).open,
    endlessBytes: async () => (await seen()).endlessBytes,
    [Symbol.asyncDispose]: () => endProcess(child, "SIGKILL"),
  };
}

/** Returns once all have their first bytes; the returned function ends them. */
export async function openStreams(url: string, count: number): Promise<() => void> {
  const agent = new Agent({ maxSockets: count });
  const body = JSON.stringify(chat(PROMPT, { stream: true }));
  const asked: ClientRequest[] = [];
  let begun = 0;
  for (let at = 0; at < count; at++) {
    const asking = request(`${url}/v1/chat/completions`, { agent, method: "POST", headers: { "content-type": "application/json" } }, (answer) => {
      answer.on("error", () => {});
      answer.once("data", () => begun++);
    });
    asking.on("error", () => {});
    asking.end(body);
    asked.push(asking);
    if (at % AT_ONCE === AT_ONCE - 1)
      await until(
        "they have begun",
        () => begun,
        (now) => now > at - AT_ONCE,
      );
  }
  await until(
    "all streams have begun",
    () => begun,
    (now) => now === count,
  );
  return () => {
    for (const asking of asked) asking.destroy();
    agent.destroy();
  };
}

export const residentBytes = (url: string) => metric(url, "process_resident_memory_bytes");

export async function nothingHeld(url: string): Promise<void> {
  for (const name of [
    'svc_router_engine_in_flight{engine="idle"}',
    'svc_router_engine_waiting_tokens{engine="idle"}',
    "svc_router_held_bytes",
    "svc_router_queued_requests",
  ])
    await until(
      `${name} is 0`,
      () => metric(url, name),
      (value) => value === 0,
    );
}
