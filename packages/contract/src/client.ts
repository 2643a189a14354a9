// The TypeScript client of the sandbox platform: sandboxes by operation, and the envd inside each.
import { type Answer, call, callForAnswer } from "./call.ts";
import { EnvdClient } from "./envd.ts";
import { fail } from "./failures.ts";
import type { Input, Operation, Output } from "./operation.ts";
import * as api from "./sandbox.ts";
import { listTemplates } from "./template.ts";

export const DEFAULT_BASE_URL = "http://localhost:8000";

export type ClientOptions = {
  /** Default: the environment variable SDK_API_KEY. */
  readonly apiKey?: string | undefined;
  /** Default: http://localhost:8000 */
  readonly baseURL?: string | undefined;
  /** For one answer of the control plane; default 60,000. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
};

/** What names a sandbox and opens its envd: the answer of create, connect or get. */
export type SandboxAccess = { readonly sandboxID: string; readonly envdAccessToken?: string | undefined };

/**
 * One deployment. Specification, API key: every call except `health` carries the key in X-API-Key.
 *
 * Every method throws Failure: UNAUTHENTICATED (no key, wrong key), SERVER_UNREACHABLE, TIMED_OUT, INVALID_REQUEST,
 * and those its operation lists in sandbox.ts.
 */
export class SvcClient {
  readonly baseURL: string;
  readonly #apiKey: string | undefined;
  readonly #options: { timeoutMs?: number; signal?: AbortSignal };

  constructor(options: ClientOptions = {}) {
    const { apiKey, baseURL, ...rest } = options;
    this.baseURL = (baseURL ?? DEFAULT_BASE_URL).replace(/\/+$/, "");
    this.#apiKey = apiKey ?? process.env["SDK_API_KEY"];
    this.#options = rest;
  }

  /**
   * Creates a sandbox, which runs when this returns. It is always secure: its answer holds envdAccessToken (specification,
   * command-line client). `timeout` is its life in seconds, 300 by default.
   * TEMPLATE_NOT_FOUND, TOO_MANY_REQUESTS (see `retryAfterSeconds`), CAPACITY_EXHAUSTED, SANDBOX_START_FAILED.
   */
  create(request: Input<typeof api.createSandbox>): Promise<api.SandboxAnswer> {
    return this.#call(api.createSandbox, request);
  }

  /** Every sandbox that passes the filter, newest first, fetched page by page as the loop goes on. */
  async *list(filter: ListFilter = {}): AsyncGenerator<api.ListedSandbox> {
    const { metadata, startedAfter, ...rest } = filter;
    const query = {
      ...rest,
      ...(metadata === undefined ? {} : { metadata: pairs(metadata) }),
      ...(startedAfter === undefined ? {} : { startedAfter: startedAfter.toISOString() }),
    };
    let nextToken: string | undefined;
    do {
      const page: Answer<typeof api.listSandboxes> = await callForAnswer(
        api.listSandboxes,
        { ...query, ...(nextToken === undefined ? {} : { nextToken }) },
        this.#callOptions(api.listSandboxes),
      );
      yield* page.value;
      nextToken = page.headers.get("x-next-token") || undefined;
    } while (nextToken !== undefined);
  }

  /** One sandbox with its tokens and its end. SANDBOX_NOT_FOUND. */
  get(sandboxID: string): Promise<api.SandboxDetail> {
    return this.#call(api.getSandbox, { sandboxID });
  }

  /** Ends a sandbox and all in it. SANDBOX_NOT_FOUND. */
  async delete(sandboxID: string): Promise<void> {
    await this.#call(api.deleteSandbox, { sandboxID });
  }

  /** The answer of create for a sandbox that runs; it then lives at least `timeoutSeconds` (300) more. SANDBOX_NOT_FOUND. */
  connect(sandboxID: string, timeoutSeconds?: number): Promise<api.SandboxAnswer> {
    return this.#call(api.connectSandbox, { sandboxID, ...(timeoutSeconds === undefined ? {} : { timeout: timeoutSeconds }) });
  }

  /** The sandbox ends `timeoutSeconds` from now, be that sooner or later than before. SANDBOX_NOT_FOUND. */
  async setTimeout(sandboxID: string, timeoutSeconds: number): Promise<void> {
    await this.#call(api.setSandboxTimeout, { sandboxID, timeout: timeoutSeconds });
  }

  /** The sandbox lives at least `durationSeconds` (15 to 3,600) from now; never shortens. SANDBOX_NOT_FOUND. */
  async refresh(sandboxID: string, durationSeconds?: number): Promise<void> {
    await this.#call(api.refreshSandbox, { sandboxID, ...(durationSeconds === undefined ? {} : { duration: durationSeconds }) });
  }

  templates(): Promise<Output<typeof listTemplates>> {
    return this.#call(listTemplates, {});
  }

  /** Returns when the server takes requests; needs no key. */
  async health(): Promise<void> {
    await this.#call(api.getHealth, {});
  }

  /** The envd of a sandbox just created, connected to or got. */
  envd(sandbox: SandboxAccess): EnvdClient {
    return new EnvdClient({ baseURL: this.baseURL, sandboxID: sandbox.sandboxID, envdAccessToken: sandbox.envdAccessToken });
  }

  #call<T extends Operation>(operation: T, input: Input<T>): Promise<Output<T>> {
    return call(operation, input, this.#callOptions(operation));
  }

  #callOptions(operation: Operation) {
    if (operation.credential === "none") return { baseURL: this.baseURL, ...this.#options };
    const apiKey = this.#apiKey ?? fail("UNAUTHENTICATED", "no API key: pass apiKey, or set SDK_API_KEY");
    return { baseURL: this.baseURL, apiKey, ...this.#options };
  }
}

export type ListFilter = {
  /** Every pair must match exactly. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** `running`, `paused`, or both joined by a comma; absent: both. */
  readonly state?: string;
  readonly startedAfter?: Date;
  /** Id or name. */
  readonly template?: string;
  readonly order?: "asc" | "desc";
  /** Of one page, 1 to 100. */
  readonly limit?: number;
};

/** `+` would stay a plus sign in some readers of the second layer of encoding, so spaces travel as %20. */
function pairs(map: Readonly<Record<string, string>>): string {
  return Object.entries(map)
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`)
    .join("&");
}
