// Route migrations over HTTP: POST copy and move, GET one and all.
import { fail } from "@svc/contract/failures.ts";
import { inputOf, type Route } from "../http/route.ts";
import { migrationBody } from "./input.ts";
import type { Migration, Migrations } from "./migrations.ts";
import type { MigrationMode } from "./task.ts";

const BASE = "/v1/route-migrations";

export function migrationRoutes(migrations: Migrations): Route[] {
  const create = (mode: MigrationMode): Route => ({
    method: "POST",
    path: `${BASE}/${mode}`,
    does:
      mode === "copy"
        ? "Copies an object's replica to other segments, and sees it through"
        : "Moves an object's replica to another segment, and sees it through",
    async answer({ body }) {
      const { request, maxRetries } = inputOf(migrationBody(mode), body);
      return { status: 200, value: shown(await migrations.create(request, maxRetries), migrations.namespace) };
    },
  });
  return [
    create("copy"),
    create("move"),
    {
      method: "GET",
      path: BASE,
      does: "All migrations",
      answer() {
        const tasks = migrations.all().map((migration) => shown(migration, migrations.namespace));
        return { status: 200, value: { count: tasks.length, tasks } };
      },
    },
    {
      method: "GET",
      path: `${BASE}/{task_id}`,
      does: "One migration",
      answer({ params }) {
        const id = params["task_id"] ?? "";
        const migration = migrations.find(id) ?? fail("STORE_KEY_NOT_FOUND", `route migration task ${id} was not found`);
        return { status: 200, value: shown(migration, migrations.namespace) };
      },
    },
  ];
}

function shown({ id, request, policy, progress, createdMs, updatedMs }: Migration, namespace: string): object {
  const { phase, attempts, lastError } = progress;
  const { mode, authority, tenant, domain, object_set, key, source_segment, target_segments, task_executor } = request;
  return {
    task_id: id,
    namespace,
    authority,
    tenant,
    domain,
    object_set,
    key,
    mode,
    source_segment,
    target_segments,
    task_executor,
    state: phase.state,
    attempts,
    max_retries: policy.maxRetries,
    execution_id: "executionID" in phase ? phase.executionID : null,
    next_retry_at_ms: phase.state === "retry_wait" ? phase.wakeAtMs : null,
    last_error: lastError,
    created_at_ms: createdMs,
    updated_at_ms: updatedMs,
  };
}
