// The parts that the client's operations share: the engine, local memory, cached locations and leased extents.
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { ClientHttp } from "./client-http.ts";
import type { ClientMetrics } from "./client-metrics.ts";
import type { ColdDevices } from "./cold/cold-devices.ts";
import type { OwnDisk } from "./disk/own-disk.ts";
import type { Extents } from "./extents.ts";
import type { GetParts } from "./get.ts";
import type { LocalMemory } from "./memory.ts";
import type { NofFile } from "./nof-file.ts";
import type { Damaged } from "./places.ts";
import type { PutParts } from "./put.ts";
import type { Runner } from "./runner.ts";
import type { Session } from "./session/session.ts";
import type { SyncCalls } from "./sync-calls.ts";

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

/** All parts of a client; those that its options do not ask for are undefined. */
export type ClientParts = BytesParts & {
  readonly session: Session;
  readonly tenant: string;
  readonly extents: Extents;
  readonly syncCalls: SyncCalls;
  readonly nof: NofFile | undefined;
  readonly disk: OwnDisk | undefined;
  readonly cold: ColdDevices | undefined;
  readonly http: ClientHttp | undefined;
};
