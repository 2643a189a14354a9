// What the parts of a node share; built once in main.ts, handed to every verb.
import type { KeyObject } from "node:crypto";
import type { Log } from "@svc/kit/log.ts";
import type { Networks } from "../network/networks.ts";
import type { EventType } from "../observe/events.ts";
import type { Observe } from "../observe/open.ts";
import type { RootImage, Runtime, RuntimeName } from "../runtime/runtime.ts";
import type { Catalogue } from "../template/catalogue.ts";
import type { Captures } from "./captures.ts";
import type { Clock } from "./clock.ts";
import type { NodeMetrics } from "./node-metrics.ts";
import type { Pool } from "./pool.ts";
import type { Gate } from "./queue.ts";
import type { Records } from "./records.ts";
import type { Registry } from "./registry.ts";
import type { NodeSettings } from "./settings.ts";
import type { Turns } from "./turns.ts";

export type Node = {
  readonly home: string;
  readonly settings: NodeSettings;
  readonly clock: Clock;
  readonly bootID: string;
  readonly log: Log;
  readonly metrics: NodeMetrics;
  readonly records: Records;
  readonly registry: Registry;
  readonly catalogue: Catalogue;
  /** The driver of new sandboxes, and every driver that an earlier run's sandboxes need. */
  readonly runtime: Runtime;
  readonly runtimes: ReadonlyMap<RuntimeName, Runtime>;
  runtimeNamed(name: RuntimeName): Runtime;
  /** Absent where the node may not make network namespaces (not root). */
  readonly networks: Networks | undefined;
  /** Makes sure that an image's layers are stacked where it says; at once where there are none. */
  readonly images: { ready(image: RootImage): Promise<void> };
  readonly captures: Captures;
  readonly observe: Observe;
  readonly turns: Turns;
  readonly gate: Gate;
  readonly pool: Pool;
  readonly seed: string;
  readonly initKey: { readonly privateKey: KeyObject; readonly publicKeyBase64: string };
  /** The envd of new sandboxes, below `bin` of the home. */
  readonly envd: string;
  readonly envdVersion: string;
  /** Times a stage of a start into the metrics. */
  stages(runtime: string): <T>(stage: string, work: () => Promise<T>) => Promise<T>;
  /** Writes down what happened to a sandbox: as an event, in its own log and in the node's. */
  tell(
    type: EventType,
    subject: { readonly sandboxID?: string; readonly templateID?: string },
    details: Readonly<Record<string, string | number | boolean>>,
  ): void;
  /** Sandboxes that clients own and that run, or are on their way. */
  owned(): number;
  /** Creates under way; they count against the limit of sandboxes. */
  creating: number;
  /** Paused sandboxes of which nothing runs or is left on the host, as far as this process knows. */
  readonly takenDown: Set<string>;
  stopping: boolean;
  /** What getHost() of the clients builds on: a configured domain, else localhost with the node's port. */
  domain: string;
  /** Absent until the front door is open. */
  proxy: { drop(sandboxID: string): void } | undefined;
};
