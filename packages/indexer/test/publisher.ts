// Starts publishers as separate processes: test/publisher.py with the engines' structures, controlled through its stdin.

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { endWithUs } from "@svc/harness/children.ts";
import { writeExact } from "../src/http/exact-json.ts";

const SCRIPT = fileURLToPath(new URL("./publisher.py", import.meta.url));
const PYTHON_FOLDER = [process.env["SVC_PYTHON_CLIENTS"]].find(
  (folder) => folder !== undefined && existsSync(join(folder, "msgspec")) && existsSync(join(folder, "zmq")),
);

export type PublisherOptions = {
  wire?: string;
  port?: number;
  replay_port?: number;
  rank?: number | null;
  topic?: string;
  buffer?: number;
  connect?: string;
};
export type EventStep = Record<string, unknown>;
export type BatchStep = {
  events?: EventStep[];
  payload?: string;
  zeros?: number;
  rank?: number;
  drop?: boolean;
  twice?: boolean;
  skip?: number;
  ts?: number;
  master?: boolean;
};

export type Plan = { seed: number; batches: number; blocks: number; block_size: number };

export type Publisher = {
  readonly endpoint: string;
  readonly replayEndpoint: string;
  readonly port: number;
  readonly replayPort: number;
  send(...batches: BatchStep[]): Promise<number>;
  /** Publishes the batches that `generate` in publisher.py makes from the plan. */
  generate(plan: Plan): Promise<number>;
  kill(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Says why publishers cannot run here; CI must have them. */
export function needsPublishers(): { skip: string | false } {
  if (PYTHON_FOLDER !== undefined) return { skip: false };
  const says = "missing on this host: Python's msgspec and pyzmq; ./svc setup installs them";
  if (process.env["CI"] === "true") throw new Error(says);
  return { skip: says };
}

export async function startPublisher(options: PublisherOptions = {}): Promise<Publisher> {
  const child = spawn("python3", [SCRIPT, JSON.stringify(options)], { stdio: ["pipe", "pipe", "inherit"], env: { ...process.env, PYTHONPATH: PYTHON_FOLDER } });
  endWithUs(child);
  child.stdin?.on("error", () => {}); // a killed publisher does not answer, which reports the failure
  const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  const answer = async (): Promise<Record<string, number>> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error("the publisher ended");
    return JSON.parse(value) as Record<string, number>;
  };
  const { port = 0, replay_port: replayPort = 0 } = await answer();
  const kill = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  };
  return {
    endpoint: `tcp://127.0.0.1:${port}`,
    replayEndpoint: `tcp://127.0.0.1:${replayPort}`,
    port,
    replayPort,
    async send(...batches) {
      child.stdin?.write(`${writeExact({ batches }, false)}\n`);
      return (await answer())["sequence"] ?? 0;
    },
    async generate(plan) {
      child.stdin?.write(`${JSON.stringify({ generate: plan })}\n`);
      return (await answer())["sequence"] ?? 0;
    },
    kill,
    [Symbol.asyncDispose]: kill,
  };
}
