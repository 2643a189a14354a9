// The client's template operations: list, build and follow, tag, publish, delete.
import { type Calls, mayPass, pause } from "./client-calls.ts";
import { asFailure } from "./failures.ts";
import type { Input, Output } from "./operation.ts";
import { getPull, type PullAnswer, pullTemplate } from "./pull.ts";
import * as api from "./template.ts";
import * as build from "./template-build.ts";

const POLL_MS = 250;
const FIRST_RETRY_MS = 250;
const MAX_RETRY_MS = 10_000;

export type TemplateDetail = Output<typeof api.getTemplate>;
export type RequestedTemplate = Output<typeof build.requestTemplate>;
export type BuildName = { readonly templateID: string; readonly buildID: string };
export type BuildEnd = { readonly status: "ready" | "error"; readonly reason?: { readonly message: string; readonly step?: string | undefined } };

export type FilesAnswer = { readonly present: boolean; readonly url?: string; readonly headers?: Readonly<Record<string, string>> };

/** Every method throws Failure: TEMPLATE_NOT_FOUND, and the failures of SvcClient's methods. A reference is an id, a name, or name:tag. */
export class TemplateClient {
  readonly #calls: Calls;

  constructor(calls: Calls) {
    this.#calls = calls;
  }

  /** Yields every template, fetched page by page; snapshots have their own list. */
  list(): AsyncGenerator<api.ListedTemplate> {
    return this.#calls.pages(api.listTemplatesV2, {});
  }

  /** Makes nodes with these labels (NAME=VALUE, joined by commas) fetch it in the background; returns how each stands. */
  pull(reference: string, nodeLabels?: string): Promise<PullAnswer> {
    return this.#calls.call(pullTemplate, { templateID: reference, ...(nodeLabels === undefined ? {} : { nodeLabels }) });
  }

  /** Returns how the fetches stand. */
  pulled(reference: string, nodeLabels?: string): Promise<PullAnswer> {
    return this.#calls.call(getPull, { templateID: reference, ...(nodeLabels === undefined ? {} : { nodeLabels }) });
  }

  /** Returns one template with its builds. */
  get(reference: string): Promise<TemplateDetail> {
    return this.#calls.call(api.getTemplate, { templateID: reference });
  }

  /**
   * Creates a template, or a new build of the template with this name; nothing is built before `start`.
   * `memoryMB` in MiB. INVALID_REQUEST when the name is not valid.
   */
  request(request: Input<typeof build.requestTemplate>): Promise<RequestedTemplate> {
    return this.#calls.call(build.requestTemplate, request);
  }

  /**
   * Asks whether the server already has the files of a COPY step (`hash`: 64 hexadecimal characters, see build-context.ts), and if not, where to PUT their
   * archive. `uploadFiles` of build-context.ts does the rest.
   */
  async files(templateID: string, hash: string): Promise<FilesAnswer> {
    const { present, url, headers } = await this.#calls.call(build.getTemplateFiles, { templateID, hash });
    // The server may not know the host name under which this client reaches it, so its URL is resolved against ours.
    return { present, ...(url === undefined ? {} : { url: new URL(url, this.#calls.baseURL).href }), ...(headers === undefined ? {} : { headers }) };
  }

  /** Starts a build. BUILD_NOT_FOUND; BUILD_CONFLICT if it was already started. */
  async start(request: Input<typeof build.buildTemplate>): Promise<void> {
    await this.#calls.call(build.buildTemplate, request);
  }

  /** Cancels a build that is waiting or running. BUILD_NOT_FOUND; BUILD_CONFLICT if it has ended. */
  async cancel(name: BuildName): Promise<void> {
    await this.#calls.call(build.cancelBuild, name);
  }

  /** Returns the progress of a build, with at most 100 entries of its log from `logsOffset` on. BUILD_NOT_FOUND. */
  status(name: BuildName, logsOffset = 0): Promise<Output<typeof build.getBuildStatus>> {
    return this.#calls.call(build.getBuildStatus, { ...name, logsOffset });
  }

  /** Yields a build's log from its beginning, entry by entry, until the build ends; returns how it ended. Waits for a server that is away. */
  async *follow(name: BuildName, options: { signal?: AbortSignal; follow?: boolean } = {}): AsyncGenerator<build.BuildLogEntry, BuildEnd | undefined> {
    let offset = 0;
    let retryMs = FIRST_RETRY_MS;
    for (;;) {
      options.signal?.throwIfAborted();
      try {
        const { status, logEntries, reason } = await this.status(name, offset);
        retryMs = FIRST_RETRY_MS;
        offset += logEntries.length;
        yield* logEntries;
        if (logEntries.length === build.BUILD_LOG_PAGE) continue;
        if (status === "ready") return { status };
        if (status === "error") return { status, ...(reason === undefined ? {} : { reason }) };
        if (options.follow === false) return undefined;
      } catch (error) {
        const failure = asFailure(error);
        if (!mayPass(failure)) throw error;
        await pause(Math.max(retryMs, (failure.retryAfterSeconds ?? 0) * 1000), options.signal);
        retryMs = Math.min(retryMs * 2, MAX_RETRY_MS);
        continue;
      }
      await pause(POLL_MS, options.signal);
    }
  }

  /** Deletes a template; its running sandboxes continue. TEMPLATE_IN_USE. */
  async delete(reference: string): Promise<void> {
    await this.#calls.call(api.deleteTemplate, { templateID: reference });
  }

  /** Marks a template public or private; keys of tenants start sandboxes from public ones alone. Returns the template's names. */
  async publish(reference: string, isPublic = true): Promise<string[]> {
    return (await this.#calls.call(api.updateTemplate, { templateID: reference, public: isPublic })).names;
  }

  tags(reference: string): Promise<Output<typeof api.listTags>> {
    return this.#calls.call(api.listTags, { templateID: reference });
  }

  /** Adds tags to the build that `target` (name or name:tag) refers to; each tag moves from the build that had it before. */
  tag(target: string, tags: readonly string[]): Promise<Output<typeof api.assignTags>> {
    return this.#calls.call(api.assignTags, { target, tags: [...tags] });
  }

  /** Removes tags. TAG_NOT_FOUND. */
  async untag(name: string, tags: readonly string[]): Promise<void> {
    await this.#calls.call(api.removeTags, { name, tags: [...tags] });
  }
}
