// The queue of route migrations. It is kept in memory and lost with the process; the master's routes still show what each task achieved.
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Numbers } from "../metadata/numbers.ts";
import type { Executions } from "./executions.ts";
import { advance, begun, isEnded, type MigrationEvent, type MigrationRequest, type Progress, type RetryPolicy } from "./task.ts";

/** The limit of tasks that are being assigned to executors concurrently. */
const MAX_DISPATCHES = 256;
/** The limit of unfinished tasks assigned to executors; the others wait here. */
const MAX_DISPATCHED = 1024;

export type MigrationPolicy = RetryPolicy & { readonly pollMs: number; readonly maxTasks: number; readonly namespace: string };

export type Migration = {
  readonly id: string;
  readonly request: MigrationRequest;
  readonly policy: RetryPolicy;
  readonly createdMs: number;
  updatedMs: number;
  progress: Progress;
  /** When the state is queried next, in monotonic time. */
  pollAtMs: number;
};

export class Migrations {
  readonly #executions: Executions;
  readonly #numbers: Numbers;
  readonly #policy: MigrationPolicy;
  readonly #log: Log;
  readonly #onEnd: (migration: Migration) => void;
  readonly #all = new Map<string, Migration>();
  readonly #active = new Set<Migration>();
  /** Migrations with a call in progress. */
  readonly #busy = new Set<Migration>();
  readonly #ended: Migration[] = [];
  readonly #stop = new AbortController();
  #admitting = 0;
  #dispatching = 0;
  /** True if a task waits for others to end rather than for a time. */
  #isBlocked = false;
  #isWoken = false;
  #wake: () => void = () => undefined;
  #loop: Promise<void> | undefined;

  constructor(parts: { executions: Executions; numbers: Numbers; policy: MigrationPolicy; log: Log; onEnd(migration: Migration): void }) {
    this.#executions = parts.executions;
    this.#numbers = parts.numbers;
    this.#policy = parts.policy;
    this.#log = parts.log;
    this.#onEnd = parts.onEnd;
  }

  start(): void {
    this.#loop = this.#run();
  }

  /** @throws TOO_MANY_REQUESTS if too many migrations are unfinished. */
  async create(request: MigrationRequest, maxRetries: number | undefined): Promise<Migration> {
    const { maxTasks, ...policy } = this.#policy;
    if (this.#active.size + this.#admitting >= maxTasks)
      fail("TOO_MANY_REQUESTS", `${maxTasks} route migrations have not ended yet (setting store_admin.max_migrations): try again later`);
    this.#admitting++;
    try {
      const id = `route-migration-${await this.#numbers.take()}`;
      const now = Date.now();
      const migration: Migration = {
        id,
        request,
        policy: { ...policy, maxRetries: maxRetries ?? policy.maxRetries },
        createdMs: now,
        updatedMs: now,
        progress: begun,
        pollAtMs: 0,
      };
      this.#all.set(id, migration);
      this.#active.add(migration);
      return migration;
    } finally {
      this.#admitting--;
    }
  }

  find(id: string): Migration | undefined {
    return this.#all.get(id);
  }

  /** Returns all migrations, ordered by creation, then by id. */
  all(): Migration[] {
    return [...this.#all.values()].sort((a, b) => a.createdMs - b.createdMs || numberOf(a) - numberOf(b));
  }

  /** Returns the requests of unfinished migrations. */
  active(): MigrationRequest[] {
    return [...this.#active].map(({ request }) => request);
  }

  get namespace(): string {
    return this.#policy.namespace;
  }

  counts(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { progress } of this.#all.values()) counts.set(progress.phase.state, (counts.get(progress.phase.state) ?? 0) + 1);
    return counts;
  }

  async close(): Promise<void> {
    this.#stop.abort();
    this.#wake();
    await this.#loop;
  }

  async #run(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      this.#isWoken = false;
      const timer = setTimeout(resolve, this.#policy.pollMs);
      this.#tick();
      await promise;
      clearTimeout(timer);
    }
  }

  #tick(): void {
    const [now, clockMs] = [Date.now(), performance.now()];
    this.#isBlocked = false;
    let dispatched = 0;
    for (const { progress } of this.#active) dispatched += "executionID" in progress.phase ? 1 : 0;
    for (const migration of this.#active) {
      if (this.#busy.has(migration)) continue;
      const { phase } = migration.progress;
      if (phase.state === "retry_wait" && phase.wakeAtMs <= now) this.#move(migration, { type: "retry_due" });
      else if (phase.state === "pending") {
        if (dispatched >= MAX_DISPATCHED || this.#dispatching >= MAX_DISPATCHES) {
          this.#isBlocked = true;
          continue;
        }
        dispatched++;
        this.#dispatching++;
        const isFirst = migration.progress.attempts === 0;
        this.#call(
          migration,
          this.#executions.dispatch(migration.request, isFirst).finally(() => void this.#dispatching--),
        );
      } else if ((phase.state === "dispatching" || phase.state === "running") && migration.pollAtMs <= clockMs)
        this.#call(migration, this.#executions.poll(migration.request, phase.executionID));
    }
  }

  #call(migration: Migration, event: Promise<MigrationEvent>): void {
    this.#busy.add(migration);
    event
      .then(
        (outcome) => this.#move(migration, outcome),
        (error: Error) => this.#log.error({ err: error, task: migration.id }, "a step of a route migration failed"),
      )
      .finally(() => {
        this.#busy.delete(migration);
        migration.pollAtMs = performance.now() + this.#policy.pollMs;
        // Moving the task to the end keeps stalled executors from delaying the queries of others.
        if (this.#active.delete(migration) && !isEnded(migration.progress)) this.#active.add(migration);
        if (!this.#isBlocked || this.#isWoken || this.#dispatching > MAX_DISPATCHES / 2) return;
        // One wake-up serves all calls that end in this tick.
        this.#isWoken = true;
        setImmediate(this.#wake);
      });
  }

  #move(migration: Migration, event: MigrationEvent): void {
    const before = migration.progress;
    migration.progress = advance(before, event, migration.policy);
    const { phase, attempts, lastError } = migration.progress;
    if (phase.state !== before.phase.state || attempts !== before.attempts) migration.updatedMs = Date.now();
    if (event.type === "attempt_failed")
      this.#log.warn({ task: migration.id, why: event.why, verdict: event.verdict.is, state: phase.state, attempts }, "a route migration had a problem");
    if (!isEnded(migration.progress)) return;
    this.#active.delete(migration);
    this.#ended.push(migration);
    if (this.#ended.length > this.#policy.maxTasks) this.#all.delete((this.#ended.shift() as Migration).id);
    this.#log.info({ task: migration.id, key: migration.request.key, state: phase.state, attempts, lastError }, "a route migration ended");
    this.#onEnd(migration);
  }
}

const numberOf = ({ id }: Migration) => Number(id.slice(id.lastIndexOf("-") + 1));
