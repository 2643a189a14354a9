// The types that the operations of the transfer engine take and return.
import type { TransferStatusName } from "./status.ts";

export type EngineOptions = {
  /** Installs the transports of this host at init: rdma if there is a device, shm and tcp. Otherwise installTransport must be called. */
  readonly autoDiscover?: boolean;
  /** The network devices that discovery may use; an empty list allows all. */
  readonly filter?: readonly string[];
  /** Settings by name, as listed in docs/transfer-engine.md: `brand`, `transfer_timeout_ms`, … */
  readonly settings?: Readonly<Record<string, string | number | boolean>>;
};

export type InitOptions = {
  /** P2PHANDSHAKE, [etcd://]host:port, redis://host:port or http://host:port/path. */
  readonly metadata: string;
  /** The name is unique in the cluster and also names this engine's RAM segment. With a handshake it is this host's address. */
  readonly name: string;
  /** The address to listen on and to publish. Default: with P2PHANDSHAKE the host of `name`, otherwise the address of the first interface. */
  readonly host?: string;
  /** 0 takes a free port of the range min_rpc_port to max_rpc_port. */
  readonly rpcPort?: number;
};

export type RegisterOptions = {
  /** With `*` the kernel is asked where the memory is; `cpu:0`, `cuda:1`, … state it. */
  readonly location?: string;
  /** If false, peers can neither see nor access the memory. */
  readonly remoteAccessible?: boolean;
  /** If false, the record never names the memory, so only peers that were given its address reach it. */
  readonly updateMetadata?: boolean;
};

export type Proto = "tcp" | "shm" | "rdma" | "nvmeof";
export type TransportInfo = { readonly proto: string; readonly contexts: number };
/** Maps each location to the devices near it and the other devices. */
export type Topology = Readonly<Record<string, readonly [preferred: readonly string[], others: readonly string[]]>>;

/** Access to the published records, which are read from the peer or the metadata service at each call. */
export type MetadataView = {
  segmentDescriptor(segmentName: string): Promise<string | undefined>;
  segmentKey(segmentName: string): string;
  rpcKey(serverName: string): string;
};

export type Notify = { readonly name: string; readonly msg: string };

/** `transferredBytes` is a lower bound while the request is in flight. */
export type TransferStatus = { readonly status: TransferStatusName; readonly transferredBytes: bigint };
