// Our engine in its own process: commands as JSON lines, in the same format as peer.py.
import { createHash, randomFillSync } from "node:crypto";
import { createInterface } from "node:readline";
import { TransferEngine } from "../src/engine.ts";
import type { EngineOptions, InitOptions, Proto } from "../src/engine-options.ts";
import { alloc } from "../src/memory.ts";

type Command =
  | { op: "start"; options: EngineOptions & InitOptions; transports: Proto[] }
  | { op: "register"; length: number; shared?: boolean; remoteAccessible?: boolean }
  | { op: "unregister"; address: string }
  | { op: "hash" | "fill"; address: string; length: number }
  | { op: "write"; target: string; address: string; remote: string; length: number; piece: number; rounds: number; sync?: boolean }
  | { op: "notifies" }
  | { op: "cpu" }
  | { op: "free" };

let engine: TransferEngine;
const memory = new Map<string, Uint8Array<ArrayBuffer>>();
const view = (address: string, length: number) => (memory.get(address) as Uint8Array<ArrayBuffer>).subarray(0, length);

async function run(command: Command): Promise<unknown> {
  switch (command.op) {
    case "start":
      engine = new TransferEngine(command.options);
      await engine.init(command.options);
      for (const proto of command.transports) await engine.installTransport(proto);
      return engine.getServerName();
    case "register": {
      const bytes = command.shared === true ? alloc(command.length) : new Uint8Array(command.length);
      const address = (await engine.registerLocalMemory(bytes, { remoteAccessible: command.remoteAccessible ?? true })).toString();
      memory.set(address, bytes);
      return address;
    }
    case "unregister":
      await engine.unregisterLocalMemory(BigInt(command.address));
      return 0;
    case "fill":
      randomFillSync(view(command.address, command.length));
      return createHash("sha256").update(view(command.address, command.length)).digest("hex");
    case "hash":
      return createHash("sha256").update(view(command.address, command.length)).digest("hex");
    case "write": {
      const target = await engine.openSegment(command.target);
      const ranges = Array.from({ length: Math.ceil(command.length / command.piece) }, (_, index) => ({
        local: BigInt(command.address) + BigInt(index * command.piece),
        remote: BigInt(command.remote) + BigInt(index * command.piece),
        length: Math.min(command.piece, command.length - index * command.piece),
      }));
      for (let round = 0; round < command.rounds; round++)
        if (command.sync === true) engine.transferSync("WRITE", target, ranges);
        else await engine.transfer("WRITE", target, ranges);
      return 0;
    }
    case "notifies":
      return engine.getNotifies();
    case "cpu": {
      const { user, system } = process.cpuUsage();
      return (user + system) / 1e6;
    }
    case "free":
      await engine.freeEngine();
      return 0;
  }
}

console.log(JSON.stringify("ready"));
for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(JSON.stringify(await run(JSON.parse(line) as Command)));
  } catch (error) {
    console.log(JSON.stringify({ error: (error as Error).message }));
  }
}
process.exit(0);
