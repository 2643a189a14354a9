// The node's console: the page at /console with what this node can show and do.
import { join } from "node:path";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { type Console, openConsole } from "@svc/kit/console/open-console.ts";
import { nodeSeries } from "@svc/kit/console/ring.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { runDoctor } from "../../doctor/doctor.ts";
import type { Registry } from "../../records/registry.ts";
import type { NodeSettings } from "../settings.ts";
import type { Listing } from "./list.ts";

export type NodeConsoleParts = {
  readonly home: string;
  readonly settings: NodeSettings;
  readonly apiKey: string;
  readonly title: string;
  readonly version: string;
  readonly registry: Pick<Registry, "owned">;
  readonly listing: Listing;
  readonly log: Log;
  readonly metrics: Metrics;
};

export function openNodeConsole({ home, settings, registry, listing, ...parts }: NodeConsoleParts): Console {
  return openConsole({
    ...parts,
    kind: "node",
    settings: settings.console,
    domains: settings.proxy.domains,
    operations: { ...nodeOperations, ...nodeControlOperations },
    row: async (sandboxID) => listing.one(registry.owned(sandboxID)),
    async doctor() {
      await using spawner = openSpawner();
      const { SVC_RUNSC: runsc, SVC_ENVD: envd, SVC_TEMPLATES_DIR: templates } = process.env;
      return await runDoctor({ spawner, home, runsc, envd, templates });
    },
    auditLog: settings.node.audit_log === "" ? undefined : join(home, settings.node.audit_log),
    series: nodeSeries,
    home,
  });
}
