// With what the master's core begins: its settings as numbers and flags.

export type NativeOptions = {
  leaseMs: number;
  softPinMs: number;
  maxSoftPinMs: number;
  evictSoftPinned: boolean;
  evictionRatio: number;
  highWatermark: number;
  clientTtlMs: number;
  suspectMs: number;
  discardMs: number;
  releaseMs: number;
  taskTimeoutMs: number;
  /** Of `strategies`. */
  strategy: number;
  multiTenant: boolean;
  offload: boolean;
  offloadOnEvict: boolean;
  offloadForceEvict: boolean;
  offloadCapRatio: number;
  offloadQueue: number;
  /** Whether clients may mount NOF segments, and what makes objects leave these. */
  nof: boolean;
  nofEvictionRatio: number;
  nofHighWatermark: number;
  /** The folder that clients share; "" for none. */
  folderPath: string;
  /** Whether the oldest files make room there. */
  folderEvicts: boolean;
  promoteOnHit: boolean;
  promoteThreshold: number;
  promoteAtOnce: number;
  promoteQueue: number;
  /** How long a put that finds no space waits for some. */
  putWaitMs: number;
  aheadRatio: number;
  maxFrameBytes: number;
  maxConnections: number;
  maxHttpConnections: number;
  maxBufferedBytes: number;
  halfFrameMs: number;
  snapshotBytes: number;
  kvEvents: boolean;
  emitObjectKey: boolean;
  emitLegacy: boolean;
  eventBackend: string;
  /** Events that wait, and that a replay can bring. */
  eventQueue: number;
  folder: string;
  disk: boolean;
  logFileBytes: number;
};
