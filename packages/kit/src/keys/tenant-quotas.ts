// Quotas of tenants: each create, fork and resume is admitted against what the tenant uses and what is under way.
import { Failure } from "@svc/contract/failures.ts";
import { type Amount, amounts, NO_USAGE, type Quotas, type Usage } from "@svc/contract/tenants.ts";
import { openKeyedLock } from "../keyed-lock.ts";
import { TokenBucket } from "../token-bucket.ts";

/** The part of a tenant's sandbox that counts; a resume asks for no disk, because a paused sandbox has its disk already. */
export type Charge = { readonly tenant: string | undefined; readonly usage: Usage };

export type QuotaParts = {
  /** Returns undefined for a tenant without limits, to which nothing here applies. */
  readonly quotasOf: (tenant: string) => Quotas | undefined;
  /** Returns the present usage of the tenant's sandboxes, those of `run` below included once they exist. */
  readonly usedBy: (tenant: string) => Usage;
  readonly nowMs?: () => number;
};

const MINUTE_MS = 60_000;
const RETRY_SECONDS = 5;
const MAX_WAITING_VOLUMES = 256;
/** The header that says what a tenant may use, and the one that says how much of it is left. */
export const QUOTA_HEADER = "svc-quota";
export const QUOTA_LEFT_HEADER = "svc-quota-left";

export class TenantQuotas {
  readonly #parts: QuotaParts;
  readonly #nowMs: () => number;
  /** The sum of the charges under way, by tenant. */
  readonly #underWay = new Map<string, Usage>();
  readonly #volumes = openKeyedLock("tenant", MAX_WAITING_VOLUMES);
  readonly #creates = new Map<string, { readonly perMinute: number; readonly bucket: TokenBucket }>();

  constructor(parts: QuotaParts) {
    this.#parts = parts;
    this.#nowMs = parts.nowMs ?? (() => performance.now());
  }

  /**
   * Runs `work`, which makes or resumes a sandbox. What it asks for counts from the check until it has ended, so that any number at once stays
   * within the quota; for a moment it may count twice, and never not at all.
   * @throws QUOTA_EXCEEDED.
   */
  async run<T>({ tenant, usage }: Charge, work: () => Promise<T>): Promise<T> {
    const quotas = tenant === undefined ? undefined : this.#parts.quotasOf(tenant);
    if (tenant === undefined || quotas === undefined) return work();
    const used = sum(this.#parts.usedBy(tenant), this.#underWay.get(tenant) ?? NO_USAGE);
    for (const amount of amounts) {
      const limit = quotas[amount];
      if (limit !== undefined && usage[amount] > 0 && used[amount] + usage[amount] > limit) refuse(tenant, amount, limit, used[amount], usage[amount]);
    }
    this.#add(tenant, usage, 1);
    try {
      return await work();
    } finally {
      this.#add(tenant, usage, -1);
    }
  }

  /** Runs `work`, which makes a volume; one at a time for a tenant with a quota, so that `count` is exact. @throws QUOTA_EXCEEDED. */
  async runVolume<T>(tenant: string | undefined, count: () => Promise<number>, work: () => Promise<T>): Promise<T> {
    const limit = tenant === undefined ? undefined : this.#parts.quotasOf(tenant)?.volumes;
    if (tenant === undefined || limit === undefined) return work();
    return this.#volumes.run(tenant, async () => {
      const used = await count();
      if (used >= limit) refuse(tenant, "volumes", limit, used, 1);
      return work();
    });
  }

  /** Counts a create or a forked child. @throws QUOTA_EXCEEDED, with the time until the next is admitted. */
  takeCreate(tenant: string | undefined): void {
    const perMinute = tenant === undefined ? undefined : this.#parts.quotasOf(tenant)?.createsPerMinute;
    if (tenant === undefined || perMinute === undefined) return;
    const bucket = this.#bucketOf(tenant, perMinute);
    const nowMs = this.#nowMs();
    if (perMinute > 0 && bucket.take(nowMs)) return;
    throw new Failure("QUOTA_EXCEEDED", `tenant '${tenant}' may create ${perMinute} sandboxes a minute: try again later`, {
      retryAfterSeconds: perMinute === 0 ? MINUTE_MS / 1000 : Math.max(1, bucket.waitMs(nowMs) / 1000),
      details: { quota: "createsPerMinute", limit: perMinute },
    });
  }

  /** The headers of every answer to a tenant that has quotas: `sandboxes=10, memoryMB=4096`. */
  headersFor(tenant: string): Readonly<Record<string, string>> {
    const quotas = this.#parts.quotasOf(tenant);
    if (quotas === undefined) return {};
    const used = this.used(tenant);
    const limited = amounts.filter((amount) => quotas[amount] !== undefined);
    const limits = [
      ...limited.map((amount) => `${amount}=${quotas[amount]}`),
      ...(quotas.volumes === undefined ? [] : [`volumes=${quotas.volumes}`]),
      ...(quotas.createsPerMinute === undefined ? [] : [`createsPerMinute=${quotas.createsPerMinute}`]),
    ];
    const left = limited.map((amount) => `${amount}=${Math.max(0, (quotas[amount] ?? 0) - used[amount])}`);
    if (limits.length === 0) return {};
    return { [QUOTA_HEADER]: limits.join(", "), ...(left.length === 0 ? {} : { [QUOTA_LEFT_HEADER]: left.join(", ") }) };
  }

  used(tenant: string): Usage {
    return this.#parts.usedBy(tenant);
  }

  #add(tenant: string, usage: Usage, sign: 1 | -1): void {
    const next = sum(this.#underWay.get(tenant) ?? NO_USAGE, usage, sign);
    if (amounts.every((amount) => next[amount] <= 0)) this.#underWay.delete(tenant);
    else this.#underWay.set(tenant, next);
  }

  #bucketOf(tenant: string, perMinute: number): TokenBucket {
    const known = this.#creates.get(tenant);
    if (known?.perMinute === perMinute) return known.bucket;
    const bucket = new TokenBucket({ perSecond: perMinute / 60, burst: perMinute }, this.#nowMs());
    this.#creates.set(tenant, { perMinute, bucket });
    return bucket;
  }
}

export function sum(one: Usage, other: Usage, sign: 1 | -1 = 1): Usage {
  return {
    sandboxes: one.sandboxes + sign * other.sandboxes,
    processors: one.processors + sign * other.processors,
    memoryMB: one.memoryMB + sign * other.memoryMB,
    diskMB: one.diskMB + sign * other.diskMB,
  };
}

const words: Readonly<Record<Amount | "volumes", string>> = {
  sandboxes: "running sandboxes",
  processors: "processors",
  memoryMB: "MB of memory",
  diskMB: "MB of disk",
  volumes: "volumes",
};

function refuse(tenant: string, amount: Amount | "volumes", limit: number, used: number, asked: number): never {
  const message = `tenant '${tenant}' may use ${limit} ${words[amount]}, uses ${used}, and asks for ${asked} more: ${amount === "volumes" ? "delete some" : "end or pause some of its sandboxes"}, or ask for a higher quota`;
  throw new Failure("QUOTA_EXCEEDED", message, { retryAfterSeconds: RETRY_SECONDS, details: { quota: amount, limit, used, asked } });
}
