// Promotes an object from this client's disk to memory, at the location that the master allocates.
import { Failure } from "@svc/contract/failures.ts";
import type { Order } from "../../rpc/shapes.ts";
import { type Flow, move } from "../flow.ts";
import type { LocalMemory, Part } from "../memory.ts";
import { checksumOf } from "../put.ts";
import type { Runner } from "../runner.ts";
import type { Session } from "../session/session.ts";
import { diskAddress } from "./places.ts";

export type PromoteParts = { readonly session: Session; readonly runner: Runner; readonly memory: LocalMemory; readonly segmentName: string };

const MOVE_MS = 30_000;
const BYTES_PER_MS = 10_000;
const TELL_MS = 15_000;

/** Does nothing if memory is full or the object is in memory already. */
export async function promote({ session, runner, memory, segmentName }: PromoteParts, order: Order): Promise<void> {
  const { key, tenant, sizeBytes } = order;
  const started = await session.calls.call("PromotionAllocStart", session.clientID, key, tenant, sizeBytes, []);
  if (!started.ok) return;
  const { place } = started.value.target;
  const bytes = Buffer.allocUnsafeSlow(Number(sizeBytes));
  const lent = memory.forWriting([bytes]);
  let isWhole = false;
  try {
    if (place.type !== "memory") throw new Failure("STORE_CONFLICT", `key ${key}: expected memory to write to, got ${place.type}`);
    await runner.run(moveOne("READ", segmentName, diskAddress(Number(order.file)), lent.parts, sizeBytes));
    if (order.checksum !== undefined && checksumOf(lent.parts) !== order.checksum) throw new Failure("STORE_CONFLICT", `key ${key}: its file is damaged`);
    await runner.run(moveOne("WRITE", place.buffer.endpoint, place.buffer.address, lent.parts, sizeBytes));
    isWhole = true;
  } finally {
    lent.end(false);
    // If the outcome does not reach the master, its own time limit ends the promotion.
    await session.calls.callUntil(TELL_MS, isWhole ? "NotifyPromotionSuccess" : "NotifyPromotionFailure", session.clientID, key, tenant).catch(() => undefined);
  }
}

function* moveOne(opcode: "READ" | "WRITE", endpoint: string, remote: bigint, parts: readonly Part[], sizeBytes: bigint): Flow<void> {
  const words = BigUint64Array.of(parts[0]?.address ?? 0n, remote, sizeBytes);
  const failed = yield* move(opcode, [{ endpoint, words }], MOVE_MS + Math.ceil(Number(sizeBytes) / BYTES_PER_MS));
  const failure = failed.get(endpoint);
  if (failure !== undefined) throw failure;
}
