// What a client of the store is opened with.
import type { ColdTierOptions } from "./cold/cold-devices.ts";
import type { DiskEvent } from "./disk/disk-parts.ts";
import type { NofOptions } from "./nof-file.ts";
import type { SessionEvent } from "./session/session-options.ts";

export type ClientOptions = {
  /** HOST:PORT of the master's RPC, or etcd://HOST:PORT[;HOST:PORT...]: whoever leads the cluster of masters. */
  readonly master: string;
  /** Of that cluster; "svc_cluster" by default. */
  readonly clusterID?: string | undefined;
  /** This host as peers reach it. */
  readonly localHostname?: string;
  /** P2PHANDSHAKE (the default), http://host:port/path, [etcd://]host:port or redis://host:port. */
  readonly metadata?: string;
  /** tcp (the default), rdma or shm: how peers on other hosts are reached. */
  readonly protocol?: string;
  /** Holders on this host are reached through shared memory. On by default. */
  readonly sharesMemory?: boolean;
  /** Network devices for rdma, joined by commas. */
  readonly deviceName?: string;
  readonly brand?: string;
  /** A key of the master's, where it asks for one. */
  readonly token?: string | undefined;
  /** Memory that this client offers to the cluster, in bytes. 0 (the default): it only reads and writes. */
  readonly segmentBytes?: number;
  /** Memory through which bytes are copied that lie in no registered buffer. 16 MiB by default. */
  readonly localBufferBytes?: number;
  readonly tenant?: string;
  /** Its keys are those of this domain and object set alone; both `default` by default. */
  readonly domain?: string;
  readonly objectSet?: string;
  /** Of the bytes' layout: stored with every put; a read of an object that was stored with another one is a miss. Empty: not compared. */
  readonly fingerprint?: string;
  /** The name by which others know this client across its restarts, such as that of a migration's executor. Without it, its id. */
  readonly stableID?: string;
  /** Grows with each start under that name; the time in ms by default. */
  readonly epoch?: number;
  /** Equal on clients of one host. */
  readonly hostID?: string;
  /** Compare checksums also when the master was asked for the place; reads of places that are known always do. On by default. */
  readonly verifies?: boolean;
  /** Places remembered under their lease; 0 asks the master for every read. 65,536 by default. */
  readonly knownPlaces?: number;
  /** Lease memory ahead of puts of sizes that come often. On by default. */
  readonly leasesAhead?: boolean;
  /**
   * Memory in which it remembers what lies in its own memory and has a checksum, so that a master which lost its log knows it again.
   * 128 MiB by default, enough for about 600,000 objects; 0 remembers nothing.
   */
  readonly remembersBytes?: number;
  /** How long a put or a get may take in all, retries included. 10 s by default. */
  readonly timeoutMs?: number;
  /** How long to wait for a master that does not answer yet. 10 s by default. */
  readonly joinMs?: number;
  /** Carries out the copies and moves that the master assigns. On by default. */
  readonly executesTasks?: boolean;
  /** Serves /version, /health and /metrics at `clientHttpPort`. Off by default. */
  readonly enableClientHttpServer?: boolean;
  /** 9300 by default; 0 takes a free one. */
  readonly clientHttpPort?: number;
  readonly clientHttpHost?: string;
  /** Settings of the transfer engine, as docs/transfer-engine.md lists them. */
  readonly engineSettings?: Readonly<Record<string, string | number | boolean>>;
  /** A folder of this host as a tier below memory: objects that lie in this client's memory go there where the master says so. */
  readonly ssdFolder?: string;
  /** What they may take there; 0 (the default) is nine tenths of its file system. */
  readonly ssdBytes?: number;
  /** A file counts once it is on the device, so that none is lost with the power. Off by default. */
  readonly ssdSyncs?: boolean;
  /**
   * Where the master names a folder that clients share (`root_fs_dir`) and this host has it, puts store a file there as well, and reads of
   * objects that lie in no memory take it from there. On by default.
   */
  readonly usesSharedFolder?: boolean;
  /** A file or block device of this host as a NOF segment, where the master's `enable_nof` is on. */
  readonly nof?: NofOptions;
  /** Serves devices of the cold tier, as the admin server says. Needs a `stableID`. `getSync` misses what only its own bucket has. */
  readonly coldTier?: ColdTierOptions;
  readonly onEvent?: (event: SessionEvent | DiskEvent) => void;
};
