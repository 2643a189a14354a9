// The parts that all connections of an HTTP server share.
import type { Pipelined } from "../proxy/pipelined.ts";
import type { RequestHead } from "../proxy/request-head.ts";
import type { SlowHeads } from "../proxy/slow-heads.ts";
import type { HttpOptions } from "./exchange.ts";
import type { MemoryBudget, MemoryHolder } from "./memory.ts";

export type ConnectionOwner = {
  readonly options: HttpOptions;
  /** One parser serves all connections, since heads are parsed one at a time. */
  readonly head: RequestHead;
  readonly memory: MemoryBudget;
  readonly slowHeads: SlowHeads;
  readonly pipelined: Pipelined;
  readonly draining: boolean;
  closed(connection: MemoryHolder): void;
};
