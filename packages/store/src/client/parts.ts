// The parts that the client's operations share: the engine, local memory, cached locations and leased extents.
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { ClientMetrics } from "./client-metrics.ts";
import type { GetParts } from "./get.ts";
import type { LocalMemory } from "./memory.ts";
import type { Damaged } from "./places.ts";
import type { PutParts } from "./put.ts";
import type { Runner } from "./runner.ts";

export type BytesParts = {
  readonly engine: TransferEngine;
  readonly runner: Runner;
  readonly memory: LocalMemory;
  readonly putParts: PutParts;
  readonly getParts: GetParts;
  readonly metrics: ClientMetrics;
  readonly damaged: Damaged;
  readonly hostID: string;
  /** The prefix of each key on the wire. */
  readonly scope: string;
};
