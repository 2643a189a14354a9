// Opens the transfer engine of a store client: its name in the cluster, and the transports of the chosen protocol.
import { asFailure, fail } from "@svc/contract/failures.ts";
import { TransferEngine } from "@svc/transfer/engine.ts";
import type { Proto } from "@svc/transfer/engine-options.ts";

const HANDSHAKE = "P2PHANDSHAKE";
/** With a metadata service the name must be unique: the host and a free port. */
const FIRST_PORT = 17_001;
const PORTS = 3000;
const MAX_TRIES = 32;

export type EngineSetup = {
  /** The address of this host as peers reach it, or HOST:PORT. */
  readonly localHostname: string;
  /** P2PHANDSHAKE, http://host:port/path, [etcd://]host:port or redis://host:port. */
  readonly metadata: string;
  /** The transport to peers on other hosts: tcp, rdma or shm. On one host memory is shared in any case. */
  readonly protocol: string;
  /** Network devices for rdma, joined by commas; if empty, the engine chooses. */
  readonly deviceName?: string;
  /** The first part of keys in the metadata service. */
  readonly brand?: string;
  readonly settings?: Readonly<Record<string, string | number | boolean>>;
};

const transports: Readonly<Record<string, readonly Proto[]>> = { tcp: ["tcp", "shm"], rdma: ["rdma", "shm"], shm: ["shm", "tcp"] };

/** @throws INVALID_REQUEST for an unknown protocol, TRANSPORT_UNAVAILABLE for one that this host lacks, METADATA_UNAVAILABLE. */
export async function openEngine(setup: EngineSetup): Promise<TransferEngine> {
  const wanted =
    transports[setup.protocol] ??
    fail("INVALID_REQUEST", `protocol: expected one of ${Object.keys(transports).join(", ")}, got ${JSON.stringify(setup.protocol)}`);
  const filter = (setup.deviceName ?? "").split(",").filter((name) => name !== "");
  const engine = new TransferEngine({ filter, settings: { ...(setup.brand === undefined ? {} : { brand: setup.brand }), ...setup.settings } });
  try {
    await initialize(engine, setup);
    for (const proto of wanted) await engine.installTransport(proto);
    return engine;
  } catch (error) {
    await engine.freeEngine().catch(() => undefined);
    throw error;
  }
}

async function initialize(engine: TransferEngine, { localHostname, metadata }: EngineSetup): Promise<void> {
  const [, host = localHostname, port] = /^(.+):(\d{1,5})$/.exec(localHostname) ?? [];
  if (port !== undefined) return engine.init({ metadata, name: metadata === HANDSHAKE ? host : localHostname, host, rpcPort: Number(port) });
  if (metadata === HANDSHAKE) return engine.init({ metadata, name: host, host });
  const first = Math.floor(Math.random() * PORTS);
  for (let attempt = 0; ; attempt++) {
    const free = FIRST_PORT + ((first + attempt) % PORTS);
    try {
      return await engine.init({ metadata, name: `${host}:${free}`, host, rpcPort: free });
    } catch (error) {
      if (attempt === MAX_TRIES || !/in use/.test(asFailure(error).message)) throw error;
    }
  }
}
