// What the parts of a node share; built once in main.ts, handed to every verb.
import type { KeyObject } from "node:crypto";
import type { Log } from "@svc/kit/log.ts";
import type { Networks } from "../network/networks.ts";
import type { EventType } from "../observe/events.ts";
import type { Observe } from "../observe/open.ts";
import type { DeathReason, RootImage, Runtime, RuntimeName } from "../runtime/runtime.ts";
import type { Catalogue } from "../template/catalogue.ts";
import type { Captures } from "./captures.ts";
import type { Clock } from "./clock.ts";
import type { NodeMetrics } from "./node-metrics.ts";
import type { Pool } from "./pool.ts";
import type { Gate } from "./queue.ts";
import type { Records } from "./records.ts";
import type { Registry } from "./registry.ts";
import type { SetAside } from "./set-aside.ts";
import type { NodeSettings } from "./settings.ts";
import type { SandboxRecord } from "./state.ts";
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
  /** @throws SET_ASIDE with the reason when this driver cannot be used now. */
  runtimeNamed(name: RuntimeName): Runtime;
  /** Opens drivers that were missing and are there now; their names. */
  reopenDrivers(): Promise<RuntimeName[]>;
  /** Absent where the node may not make network namespaces (not root). */
  readonly networks: Networks | undefined;
  /** Makes sure that an image's layers are stacked where it says; at once where there are none. */
  readonly images: { ready(image: RootImage): Promise<void>; groundOf(image: RootImage): string | undefined };
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
  /** Sandboxes whose end no disk has taken yet, and those of which a part resists: the watch tries again. */
  readonly undecided: Map<string, DeathReason>;
  readonly resisting: Set<string>;
  /** Sandboxes whose pause failed and that could not be thawed: the watch tries again. */
  readonly frozen: Set<string>;
  /** Records that cannot be used as things are, kept out of the registry: what they name is theirs all the same. */
  readonly held: Map<string, SandboxRecord>;
  readonly aside: SetAside;
  stopping: boolean;
  /** What getHost() of the clients builds on: a configured domain, else localhost with the node's port. */
  domain: string;
  /** Absent until the front door is open. */
  proxy: { drop(sandboxID: string): void } | undefined;
};
