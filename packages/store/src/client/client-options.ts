// The options of a store client.
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import type { ColdTierOptions } from "./cold/cold-devices.ts";
import type { DiskEvent } from "./disk/disk-parts.ts";
import type { NofOptions } from "./nof-file.ts";
import type { SessionEvent } from "./session/session-options.ts";

export type ClientOptions = {
  /** HOST:PORT of the master's RPC, or etcd://HOST:PORT[;HOST:PORT...] to follow the leader of a cluster of masters. */
  readonly master: string;
  /** The id of that cluster; "svc_cluster" by default. */
  readonly clusterID?: string | undefined;
  /** The certificate of this process, for a master at tls://HOST:PORT, for masters found in etcd, and for etcd at etcd://https://HOST:PORT. */
  readonly certificates?: PeerCertificates | undefined;
  /** The address of this host as peers reach it. */
  readonly localHostname?: string;
  /** P2PHANDSHAKE (the default), http://host:port/path, [etcd://]host:port or redis://host:port. */
  readonly metadata?: string;
  /** The transport to peers on other hosts: tcp (the default), rdma or shm. */
  readonly protocol?: string;
  /** Lets holders on this host be reached through shared memory. On by default. */
  readonly sharesMemory?: boolean;
  /** Network devices for rdma, joined by commas. */
  readonly deviceName?: string;
  readonly brand?: string;
  /** The access key for a master that requires one. */
  readonly token?: string | undefined;
  /** Bytes of memory that this client offers to the cluster. With 0 (the default) it only reads and writes. */
  readonly segmentBytes?: number;
  /** Bytes of staging memory for buffers that are not registered. 16 MiB by default. */
  readonly localBufferBytes?: number;
  readonly tenant?: string;
  /** Restricts the client to the keys of this domain and object set; both are `default` by default. */
  readonly domain?: string;
  readonly objectSet?: string;
  /** Identifies the layout of the bytes and is stored with every put; reading an object with another fingerprint is a miss. Empty: not compared. */
  readonly fingerprint?: string;
  /** The name of this client across restarts, for example as the executor of a migration. Defaults to its id. */
  readonly stableID?: string;
  /** Increases with each start under that name; the time in ms by default. */
  readonly epoch?: number;
  /** Equal for all clients on one host. */
  readonly hostID?: string;
  /** Makes reads verify checksums even if the master just returned the location; reads from cached locations always do. On by default. */
  readonly verifies?: boolean;
  /** The number of locations cached under their lease; with 0 every read asks the master. 65,536 by default. */
  readonly knownPlaces?: number;
  /** Leases memory in advance for frequent put sizes. On by default. */
  readonly leasesAhead?: boolean;
  /**
   * Memory in which the client remembers the objects in its segment that have a checksum, so that a master that lost its log can restore them. 128
   * MiB by default, enough for about 600,000 objects; 0 remembers nothing.
   */
  readonly remembersBytes?: number;
  /** The limit of a put or get, retries included. 10 s by default. */
  readonly timeoutMs?: number;
  /** The limit of waiting for a master that does not answer yet. 10 s by default. */
  readonly joinMs?: number;
  /** Executes the copies and moves that the master assigns. On by default. */
  readonly executesTasks?: boolean;
  /** Serves /version, /health and /metrics at `clientHttpPort`. Off by default. */
  readonly enableClientHttpServer?: boolean;
  /** 9300 by default; 0 picks a free port. */
  readonly clientHttpPort?: number;
  readonly clientHttpHost?: string;
  /** The transfer engine's settings, as listed in docs/transfer-engine.md. */
  readonly engineSettings?: Readonly<Record<string, string | number | boolean>>;
  /** A folder of this host as a tier below memory: the master decides which objects of this client's memory are written there. */
  readonly ssdFolder?: string;
  /** The capacity of that folder in bytes; 0 (the default) is nine tenths of its file system. */
  readonly ssdBytes?: number;
  /** Makes a file count only once it is synced to the device, so that none is lost on a power failure. Off by default. */
  readonly ssdSyncs?: boolean;
  /**
   * If the master names a shared folder (`root_fs_dir`) and this host has it, puts store a file
   * there as well, and reads fall back to it for objects without a replica in memory. On by default.
   */
  readonly usesSharedFolder?: boolean;
  /** A file or block device of this host that serves as a NOF segment, if the master's `enable_nof` is on. */
  readonly nof?: NofOptions;
  /** Serves devices of the cold tier as the admin server directs; needs a `stableID`. `getSync` misses objects that only this client's own bucket has. */
  readonly coldTier?: ColdTierOptions;
  readonly onEvent?: (event: SessionEvent | DiskEvent) => void;
};
