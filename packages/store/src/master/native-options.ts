// The settings of the master's core, as numbers and flags.

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
  /** An index into `strategies`. */
  strategy: number;
  multiTenant: boolean;
  offload: boolean;
  offloadOnEvict: boolean;
  offloadForceEvict: boolean;
  offloadCapRatio: number;
  offloadQueue: number;
  /** NOF segments, and the thresholds of their eviction. */
  nof: boolean;
  nofEvictionRatio: number;
  nofHighWatermark: number;
  /** The shared folder; "" for none. */
  folderPath: string;
  /** True if the oldest files there are evicted for new ones. */
  folderEvicts: boolean;
  promoteOnHit: boolean;
  promoteThreshold: number;
  promoteAtOnce: number;
  promoteQueue: number;
  /** How long a put without capacity waits for some. */
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
  /** Bounds the events that wait, and those that a replay can return. */
  eventQueue: number;
  folder: string;
  disk: boolean;
  logFileBytes: number;
};
