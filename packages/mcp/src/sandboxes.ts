// The sandboxes of one agent's session: a default one that starts on first use, further ones that it creates, and their removal.
import type { SvcClient } from "@svc/contract/client.ts";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import { INTERPRETER_TEMPLATE } from "./interpreter.ts";

/** The limit stops a runaway agent before it fills the node. */
const MAX_SANDBOXES = 50;

export type SessionOptions = {
  /** If undefined, the code interpreter's template is used if the deployment has it, else base. */
  readonly template: string | undefined;
  /** The time after the session's last call for a sandbox at which that sandbox ends. */
  readonly timeoutSeconds: number;
  /** If true, sandboxes outlive the session until their timeout. */
  readonly keep: boolean;
  /** True if requests belong to no session: each call names its sandbox, which lives until its timeout. */
  readonly stateless?: boolean;
};

export type CreateRequest = {
  readonly template?: string | undefined;
  readonly env?: Record<string, string> | undefined;
  readonly allowInternet?: boolean | undefined;
};

export type Inside = { readonly sandboxID: string; readonly envd: EnvdClient; readonly answered: SandboxAnswer };

export class SessionSandboxes {
  readonly client: SvcClient;
  readonly #options: SessionOptions;
  /** The session's sandboxes, and when a call last used each. */
  readonly #own = new Map<string, number>();
  #first: Promise<string> | undefined;
  #creating = 0;
  #closed = false;

  constructor(client: SvcClient, options: SessionOptions) {
    this.client = client;
    this.#options = options;
  }

  /** Creates a sandbox that ends with the session. */
  async create({ template, env, allowInternet }: CreateRequest = {}): Promise<SandboxAnswer> {
    this.#checkLimit(1);
    this.#creating++;
    try {
      const made = await this.client.create({
        templateID: template ?? this.#options.template ?? (await this.#defaultTemplate()),
        timeout: this.#options.timeoutSeconds,
        ...(env === undefined ? {} : { envVars: env }),
        ...(allowInternet === undefined ? {} : { allow_internet_access: allowInternet }),
        metadata: { createdBy: "svc mcp" },
      });
      await this.#adopt([made.sandboxID]);
      return made;
    } finally {
      this.#creating--;
    }
  }

  /** Returns the copies, which end with the session, and the reasons of those that failed. */
  async fork(sandboxID: string, count: number) {
    this.#checkLimit(count);
    this.#creating += count;
    try {
      const children = await this.client.fork(sandboxID, { count, timeoutSeconds: this.#options.timeoutSeconds });
      const ids = children.flatMap((child) => ("sandbox" in child && child.sandbox !== undefined ? [child.sandbox.sandboxID] : []));
      await this.#adopt(ids);
      return { ids, errors: children.flatMap((child) => ("error" in child && child.error !== undefined ? [child.error.message] : [])) };
    } finally {
      this.#creating -= count;
    }
  }

  /** Returns the sandbox that a call means: the named one, or else the session's first, which is created on demand. */
  async resolve(named: string | undefined): Promise<string> {
    if (named !== undefined) return named;
    if (this.isStateless)
      fail("INVALID_REQUEST", "sandbox: is missing, and this connection has no session: start one with sandbox_create, and pass its id with each call");
    this.#first ??= this.create().then(({ sandboxID }) => sandboxID);
    try {
      return await this.#first;
    } catch (error) {
      this.#first = undefined;
      throw error;
    }
  }

  /** Returns the envd client of a running sandbox: a paused one is resumed, and a running one has its timeout extended. */
  async inside(named: string | undefined): Promise<Inside> {
    const sandboxID = await this.resolve(named);
    try {
      const answered = await this.client.connect(sandboxID, this.#options.timeoutSeconds);
      if (this.#own.has(sandboxID)) this.#own.set(sandboxID, performance.now());
      return { sandboxID, envd: this.client.envd(answered), answered };
    } catch (error) {
      const failure = asFailure(error);
      if (failure.name !== "SANDBOX_NOT_FOUND") throw failure;
      this.#own.delete(sandboxID);
      if (named !== undefined) throw failure;
      this.#first = undefined;
      throw new Failure(failure.name, `this session's sandbox ${sandboxID} has ended, and its files are gone; call again to start a new one`, { cause: error });
    }
  }

  async kill(sandboxID: string): Promise<void> {
    await this.client.delete(sandboxID);
    this.#own.delete(sandboxID);
    const first = await this.#first?.catch(() => undefined);
    if (first === sandboxID) this.#first = undefined;
  }

  /** Deletes the session's sandboxes, unless they are to be kept. */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#options.keep || this.isStateless) return;
    await this.#first?.catch(() => undefined);
    await Promise.allSettled([...this.#own.keys()].map((sandboxID) => this.client.delete(sandboxID)));
    this.#own.clear();
  }

  get isStateless(): boolean {
    return this.#options.stateless === true;
  }

  /** The ids of this session's sandboxes. */
  ids(): readonly string[] {
    return [...this.#own.keys()];
  }

  async #defaultTemplate(): Promise<string> {
    try {
      const { builds } = await this.client.templates.get(INTERPRETER_TEMPLATE);
      return builds.some(({ status }) => status === "ready") ? INTERPRETER_TEMPLATE : "base";
    } catch (error) {
      if (asFailure(error).name === "TEMPLATE_NOT_FOUND") return "base";
      throw error;
    }
  }

  #checkLimit(count: number): void {
    // Without a session, a sandbox that no call has used for the length of its timeout has ended and no longer counts.
    if (this.isStateless) {
      const since = performance.now() - this.#options.timeoutSeconds * 1000;
      for (const [id, usedAt] of this.#own) if (usedAt < since) this.#own.delete(id);
    }
    if (this.#own.size + this.#creating + count > MAX_SANDBOXES)
      fail("TOO_MANY_REQUESTS", `this session has ${this.#own.size} sandboxes; the maximum is ${MAX_SANDBOXES}, end some with sandbox_kill`);
  }

  /** A sandbox that is created after the session has closed is deleted at once. */
  async #adopt(ids: readonly string[]): Promise<void> {
    for (const id of ids) this.#own.set(id, performance.now());
    if (this.#closed && !this.#options.keep && !this.isStateless) await Promise.allSettled(ids.map((id) => this.client.delete(id)));
  }
}
