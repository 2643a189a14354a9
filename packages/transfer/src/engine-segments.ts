// Segments, transports and inspection: the part of the class that finds peers.
import { Failure, fail } from "@svc/contract/failures.ts";
import { flag } from "./engine-core.ts";
import { EngineTransfers } from "./engine-transfers.ts";
import { INVALID_SEGMENT_ID } from "./status.ts";

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

export class EngineSegments extends EngineTransfers {
  /**
   * Opens a peer's segment by name: its server name, or `nvmeof/<file segment>`. The same name gives the same handle.
   * @throws METADATA_UNAVAILABLE if it has no record, or its peer does not answer.
   */
  async openSegment(segmentName: string): Promise<bigint> {
    return (await this.core.callAsync("openSegment", [segmentName])) as bigint;
  }
  /**
   * With `timeoutMs` the call blocks the thread no longer than that, even if the segment's folder or peer hangs. The operation continues,
   * and the same call made again waits for it. @throws TIMED_OUT after that time.
   */
  openSegmentSync(segmentName: string, timeoutMs?: number): bigint {
    if (timeoutMs === undefined) return this.core.call("openSegment", [segmentName]) as bigint;
    const opened = this.core.callWithin(timeoutMs, "openSegment", [segmentName]) as bigint | undefined;
    return opened ?? fail("TIMED_OUT", `segment ${segmentName} was not opened within ${timeoutMs} ms`);
  }
  /** Like openSegment, but returns the invalid handle instead of throwing a failure. */
  async tryOpenSegment(segmentName: string): Promise<bigint> {
    try {
      return await this.openSegment(segmentName);
    } catch (error) {
      if (error instanceof Failure) return INVALID_SEGMENT_ID;
      throw error;
    }
  }

  /** Releases the handle. When the last opener closes it, the connections to the peer close and their transfers in flight fail. */
  closeSegment(segmentID: bigint): void {
    this.core.call("closeSegment", [], [segmentID]);
  }

  /** Forgets a peer's cached record. For this engine's own name it deletes the record from the metadata service. */
  async removeLocalSegment(segmentName: string): Promise<void> {
    await this.core.callAsync("removeLocalSegment", [segmentName]);
  }
  removeLocalSegmentSync(segmentName: string): void {
    this.core.call("removeLocalSegment", [segmentName]);
  }

  /**
   * Serves a folder of this host as the segment `nvmeof/SERVER/LABEL`, which peers can read, with or without a metadata service. File N,
   * named by eight hexadecimal digits, begins at N << 35. Needs the transports nvmeof and tcp. @returns the segment's name. @throws
   * INVALID_REQUEST.
   */
  async serveFolder(label: string, path: string): Promise<string> {
    return (await this.core.callAsync("serveFolder", [label, path])) as string;
  }
  /**
   * Serves a file or block device of this host, with its present length, as the segment `nvmeof/SERVER/LABEL`, which peers read and write
   * through this engine, with or without a metadata service. Needs the transports nvmeof and tcp. @returns the segment's name. @throws
   * INVALID_REQUEST.
   */
  async serveFile(label: string, path: string): Promise<string> {
    return (await this.core.callAsync("serveFile", [label, path])) as string;
  }
  /** Stops serving a folder or a file. Peers that have the segment open can use it until they close it. */
  stopFolder(label: string): void {
    this.core.call("stopFolder", [label]);
  }

  /**
   * Resolves if the peer answers and its record is valid. @throws SERVER_UNREACHABLE, METADATA_UNAVAILABLE, TRANSPORT_UNAVAILABLE
   * otherwise.
   */
  async checkSegmentStatus(segmentID: bigint): Promise<void> {
    await this.core.callAsync("CheckSegmentStatus", [], [segmentID]);
  }
  checkSegmentStatusSync(segmentID: bigint): void {
    this.core.call("CheckSegmentStatus", [], [segmentID]);
  }

  /** Reads the record of one open segment, or of all, again. */
  async syncSegmentCache(segmentName = ""): Promise<void> {
    await this.core.callAsync("syncSegmentCache", [segmentName]);
  }
  syncSegmentCacheSync(segmentName = ""): void {
    this.core.call("syncSegmentCache", [segmentName]);
  }

  /**
   * Returns whether the peer of an open segment answers a probe.
   * @throws INVALID_REQUEST if the segment is not open.
   */
  async probePeerAlive(segmentID: bigint): Promise<boolean> {
    try {
      await this.core.callAsync("probePeerAliveByID", [], [segmentID]);
      return true;
    } catch (error) {
      if (error instanceof Failure && error.name !== "INVALID_REQUEST") return false;
      throw error;
    }
  }

  /** @throws TRANSPORT_UNAVAILABLE with the reason if this host does not support it; no other transport replaces it. */
  async installTransport(proto: Proto, priorityMatrix?: Topology): Promise<TransportInfo> {
    await this.core.callAsync("installTransport", [proto, priorityMatrix === undefined ? "" : JSON.stringify(priorityMatrix)]);
    return this.getTransport(proto) as TransportInfo;
  }
  installTransportSync(proto: Proto, priorityMatrix?: Topology): TransportInfo {
    this.core.call("installTransport", [proto, priorityMatrix === undefined ? "" : JSON.stringify(priorityMatrix)]);
    return this.getTransport(proto) as TransportInfo;
  }

  /** Closes the transport's connections and publishes the engine without it. */
  async uninstallTransport(proto: Proto): Promise<void> {
    await this.core.callAsync("uninstallTransport", [proto]);
  }
  uninstallTransportSync(proto: Proto): void {
    this.core.call("uninstallTransport", [proto]);
  }

  getTransport(proto: Proto): TransportInfo | undefined {
    try {
      return { proto, contexts: this.core.call("getTransport", [proto]) as number };
    } catch (error) {
      if (error instanceof Failure) return undefined;
      throw error;
    }
  }

  getMetadata(): MetadataView {
    const core = this.core;
    return {
      async segmentDescriptor(name) {
        const text = (await core.callAsync("segmentDescriptor", [name])) as string;
        return text === "" ? undefined : text;
      },
      segmentKey: (name) => core.call("segmentKey", [name]) as string,
      rpcKey: (name) => core.call("rpcKey", [name]) as string,
    };
  }

  /** Has an effect only before init. */
  setAutoDiscover(autoDiscover: boolean): void {
    this.core.call("setAutoDiscover", [], [flag(autoDiscover)]);
  }
  /** Sets the devices that discovery and the rdma transport may use. */
  setWhitelistFilters(filters: readonly string[]): void {
    this.core.call("setWhitelistFilters", filters);
  }
  /** The number of active contexts: one per transport, for rdma one per device. */
  numContexts(): number {
    return this.core.call("numContexts") as number;
  }
  getLocalTopology(): Topology {
    return JSON.parse(this.core.call("getLocalTopology") as string) as Topology;
  }
  /** host:port of the handshake port; empty before init. */
  getLocalIpAndPort(): string {
    return this.core.call("getLocalIpAndPort") as string;
  }
  getRpcPort(): number {
    return this.core.call("getRpcPort") as number;
  }
  /** The name that peers open: as given, or host:port if a handshake replaces the metadata service. */
  getServerName(): string {
    return this.core.call("getServerName") as string;
  }
  /** Returns the path that a request to this range takes, and why each earlier one was skipped. */
  explainPath(segmentID: bigint, targetOffset: bigint, lengthBytes: number | bigint): string {
    return this.core.call("explainPath", [], [segmentID, targetOffset, BigInt(lengthBytes)]) as string;
  }
}
