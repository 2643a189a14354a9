// Moves objects off a device with one route migration per object.
import { scopeOf, splitScope } from "@svc/store/rpc/scope.ts";
import type { ColdFile } from "@svc/store/rpc/shapes.ts";
import { wireName } from "../masters/masters.ts";
import type { Migrations } from "../migrations/migrations.ts";
import type { ColdTierParts } from "./cold-tier.ts";

const fromWire = (text: string) => Buffer.from(text, "latin1").toString();

export function movesOf(migrations: Migrations): Pick<ColdTierParts, "move" | "moving"> {
  return {
    moving(source) {
      const active = migrations.active().filter(({ source_segment }) => source_segment === source);
      return new Set(
        active.map((request) => {
          const { tenant, key } = wireName(request);
          return `${tenant}\0${key}`;
        }),
      );
    },
    async move({ tenant, key: wireKey }: ColdFile, source, targets, executor, maxRetries) {
      const { prefix, key } = splitScope(wireKey);
      const { domain, objectSet } = scopeOf(fromWire(prefix));
      const object = { tenant: fromWire(tenant), domain: domain ?? null, object_set: objectSet ?? null, key: fromWire(key) };
      const request = { mode: "move", authority: "", ...object, source_segment: source, target_segments: targets, task_executor: executor } as const;
      return (await migrations.create(request, maxRetries)).id;
    },
  };
}
