// The parts that a server gives to its console, and those that exist once the server has an address.
import type { SvcClient } from "@svc/contract/client.ts";
import type { ConsoleKind } from "@svc/contract/console.ts";
import type { Operation } from "@svc/contract/operation.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import type { FastifyInstance } from "fastify";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { Inside } from "./inside.ts";
import type { Live } from "./live.ts";
import type { Ring, Series } from "./ring.ts";
import type { ConsoleSettings } from "./settings.ts";

export type ConsoleOptions = {
  readonly kind: ConsoleKind;
  readonly title: string;
  readonly version: string;
  readonly settings: ConsoleSettings;
  readonly apiKey: string;
  /** Where the key comes from, for the page and the message of a refused sign-in; default: the deployment's API key. */
  readonly keySource?: string;
  /** The domains of sandboxes; the first one is used in links, and without one nothing may be framed. */
  readonly domains: readonly string[];
  /** The operations that a page may call. */
  readonly operations: Readonly<Record<string, Operation>>;
  /** Reads one sandbox without a request; undefined if it is gone. Absent for a server without sandboxes. */
  readonly row?: (sandboxID: string) => Promise<ListedSandbox | undefined>;
  /** Checks the host, as `svc doctor` does. */
  readonly doctor?: () => Promise<unknown>;
  /** The path of the audit log; absent for a server that keeps none. */
  readonly auditLog?: string | undefined;
  readonly series: readonly Series[];
  /** A ring that the server has begun already. */
  readonly ring?: Ring;
  /** The server's home, whose disk is watched. */
  readonly home: string;
  readonly log: Log;
  readonly metrics: Metrics;
  /** The folder of the built page; default: the variable SVC_CONSOLE. */
  readonly folder?: string | undefined;
};

/** The part of the console that exists once the server has an address. */
export type Started = {
  readonly app: FastifyInstance;
  readonly domain: string;
  readonly live: Live;
  readonly inside: Inside | undefined;
  readonly client: SvcClient;
};
