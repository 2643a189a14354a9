// Our store client in a process of its own: a holder for tests and benches, driven by lines of JSON.
import { createInterface } from "node:readline";
import { asFailure } from "@svc/contract/failures.ts";
import { alloc } from "@svc/transfer/memory.ts";
import type { ClientOptions } from "../src/client/client-options.ts";
import { StoreClient } from "../src/client/store-client.ts";

const client = await StoreClient.open(JSON.parse(process.argv[2] ?? "{}") as ClientOptions);
const say = (value: unknown) => process.stdout.write(`${JSON.stringify(value, (_key, each) => (typeof each === "bigint" ? String(each) : each))}\n`);

/** Puts registered memory synchronously: the client's fast path, without a flow. */
async function putRegistered(key: string, bytes: Buffer): Promise<boolean> {
  const memory = new Uint8Array(alloc(bytes.length));
  memory.set(bytes);
  await client.registerBuffer(memory);
  try {
    return client.putSync(key, memory);
  } finally {
    await client.unregisterBuffer(memory);
  }
}

type Command = { seq: number; op: string; args: never[] };

/** Bytes are encoded as base64. */
async function run({ op, args }: Command): Promise<unknown> {
  const [first, second] = args as unknown as [string, string];
  if (op === "put") return client.put(first, Buffer.from(second, "base64"), args[2]);
  if (op === "putRegistered") return putRegistered(first, Buffer.from(second, "base64"));
  if (op === "upsert") return client.upsert(first, Buffer.from(second, "base64"), args[2]);
  if (op === "get") return (await client.get(first))?.toString("base64") ?? null;
  if (op === "getSync") return client.getSync(first)?.toString("base64") ?? null;
  if (op === "name") return client.segmentName;
  if (op === "disk") return client.disk;
  const method = client[op as "exists"] as (...given: unknown[]) => Promise<unknown>;
  return (await method.apply(client, args)) ?? null;
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const command = JSON.parse(line) as Command;
  run(command).then(
    (value) => say({ seq: command.seq, value }),
    (error) => say({ seq: command.seq, error: asFailure(error).name, message: asFailure(error).message }),
  );
});
say({ seq: 0, value: client.segmentName });
