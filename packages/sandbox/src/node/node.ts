// A node as its server uses it: the parts that routes, the proxy and the watch call.
import type { StagedBackup } from "@svc/contract/backup.ts";
import type { Keys } from "@svc/kit/keys/keys.ts";
import type { Guard } from "@svc/kit/keys/own-answer.ts";
import type { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Part } from "@svc/kit/lifecycle.ts";
import type { Membership } from "../cluster/join.ts";
import type { Cluster } from "../cluster/open-cluster.ts";
import type { Observe } from "../observe/open-observe.ts";
import type { PreviewStore } from "../previews/store.ts";
import type { SandboxDirectory } from "../records/directory.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import type { Secrets } from "../secrets/open-secrets.ts";
import type { SnapshotTransfer } from "../snapshot-transfer/open-snapshot-transfer.ts";
import type { Templates } from "../template/open-templates.ts";
import type { Volumes } from "../volumes/open-volumes.ts";
import type { Verbs } from "./serve/routes.ts";
import type { Capacity } from "./supply/capacity.ts";
import type { Pool } from "./supply/pool.ts";
import type { ProxyLink } from "./supply/proxy-link.ts";
import type { Pulls } from "./supply/pulls.ts";
import type { KeyedCreates } from "./verbs/create-keys.ts";
import type { NamedSnapshots } from "./verbs/named-snapshots.ts";
import type { Takes } from "./verbs/take.ts";
import type { Drain } from "./watch/drain.ts";
import type { GC } from "./watch/gc.ts";
import type { EndedAll, Recovered } from "./watch/recover.ts";

export type Node = {
  readonly verbs: Verbs;
  readonly templates: Templates;
  /** Fetches a template or snapshot of the deployment, or builds one on first use; returns its name or id, or undefined. */
  readonly fetch: (asked: string) => Promise<string | undefined>;
  readonly snapshots: NamedSnapshots;
  readonly observe: Observe;
  readonly transfer: SnapshotTransfer;
  readonly volumes: Volumes;
  readonly secrets: Secrets;
  readonly previews: PreviewStore;
  /** The node's interface for gateways. */
  readonly cluster: Cluster;
  /** The proxy's way to find and wake sandboxes. */
  readonly directory: SandboxDirectory;
  /** Functions that the proxy fills in when it opens. */
  readonly proxy: ProxyLink;
  readonly pool: Pool;
  readonly capacity: Capacity;
  /** The driver that starts new sandboxes. */
  readonly runtime: RuntimeName;
  /** Undefined where the node runs alone. */
  readonly membership: Membership | undefined;
  readonly drain: Drain;
  readonly takes: Takes;
  readonly keyed: KeyedCreates;
  /** Absent while sandboxes are only ended. */
  readonly apiKeys: Keys | undefined;
  readonly quotas: TenantQuotas;
  /** Refuses what a tenant's request may not name. */
  readonly guard: Guard;
  readonly gc: GC;
  readonly pulls: Pulls;
  /** Copies the node's state as of one moment, for `svc backup create`. */
  readonly stageBackup: () => Promise<StagedBackup>;
  recover(): Promise<Recovered>;
  /** Ends every sandbox; returns the ids of those that ended and of those that could not be ended. */
  endAll(): Promise<EndedAll>;
  watch(): { close(): Promise<void> };
  /** The parts in closing order. With `destroys`, or when no sandbox is left, parts that would outlive the node are removed as well. */
  parts(destroys: boolean): Part[];
};
