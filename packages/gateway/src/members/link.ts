// A gateway's stream from one node: opens it, reads frames, and reports at once when it breaks or falls silent.
import type { ClientRequest, IncomingMessage } from "node:http";
import { CLUSTER_VERSION, type ClusterFrame, clusterFrame, MAX_FRAME_BYTES, STREAM_PATH } from "@svc/contract/cluster.ts";
import { type PeerClient, PeerRefused, plainPeers } from "@svc/kit/peers/peer-client.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import { SilenceBound } from "./silence-bound.ts";

export type LinkOptions = {
  readonly url: string;
  readonly peers?: PeerClient | undefined;
  readonly apiKey: string;
  /** The domain at which this gateway's clients reach sandboxes. */
  readonly domain: () => string;
  /** A node that is silent for this long counts as lost; longer where its messages came late before. */
  readonly silenceMs: number;
  readonly onFrame: (frame: ClusterFrame) => void;
  /** Called when the node sends no state any more; the link reconnects by itself. */
  readonly onDown: (reason: string, how: Down) => void;
};

/** Silent: the connections are still open and the node may only be slow. Refused: the node answers, but rejects this gateway. */
export type Down = "broken" | "silent" | "refused";

const FIRST_RETRY_MS = 50;
const MAX_RETRY_MS = 1_000;
/** The bound from the request to the complete state, which a node with many sandboxes needs some time to send. */
const FIRST_FRAME_MS = 5_000;
const MAX_REFUSAL_BYTES = 64 * 1024;

/** The stream from one node, whatever carries it. */
export type Stream = Pick<Link, "open" | "reject" | "close">;

export class Link {
  readonly #options: LinkOptions;
  #request: ClientRequest | undefined;
  #retryMs = FIRST_RETRY_MS;
  #retry: NodeJS.Timeout | undefined;
  #silence: NodeJS.Timeout | undefined;
  readonly #bound: SilenceBound;
  /** How much later than requested the last timer fired, because this process was blocked. */
  #lateMs = 0;
  #closed = false;

  constructor(options: LinkOptions) {
    this.#options = options;
    this.#bound = new SilenceBound(options.silenceMs);
  }

  open(): void {
    const { url, apiKey, domain, peers = plainPeers() } = this.#options;
    const query = new URLSearchParams({ version: String(CLUSTER_VERSION), domain: domain() });
    const opened = peers.request(`${url}${STREAM_PATH}?${query}`, { headers: { "x-api-key": apiKey } });
    this.#request = opened;
    this.#listenFor(FIRST_FRAME_MS, opened);
    opened.on("response", (response) => void (response.statusCode === 200 ? this.#read(response, opened) : this.#refused(response, opened)));
    opened.on("error", (error: NodeJS.ErrnoException) => this.#down(opened, unreachable(error), error instanceof PeerRefused ? "refused" : "broken"));
    opened.end();
  }

  #read(response: IncomingMessage, opened: ClientRequest): void {
    let rest = "";
    response.setEncoding("utf8");
    response.on("data", (text: string) => {
      this.#bound.heard(performance.now(), this.#lateMs);
      this.#listenFor(this.#bound.ms, opened);
      const lines = (rest + text).split("\n");
      rest = lines.pop() ?? "";
      if (rest.length > MAX_FRAME_BYTES) return this.#down(opened, `it sent a line of more than ${MAX_FRAME_BYTES} bytes`);
      for (const line of lines) if (this.#request === opened) this.#take(line, opened);
    });
    response.on("close", () => this.#down(opened, "it ended the stream of its state"));
  }

  #take(line: string, opened: ClientRequest): void {
    try {
      const value: unknown = JSON.parse(line);
      // Frames of kinds that only a newer node knows are ignored.
      if (!isKnown(value)) return;
      const frame = clusterFrame.parse(value);
      this.#retryMs = FIRST_RETRY_MS;
      this.#options.onFrame(frame);
    } catch (error) {
      this.#down(opened, `it sent a frame that is not valid: ${(error as Error).message.slice(0, 300)}`);
    }
  }

  /** Reports the node's own reason for refusing the stream. */
  async #refused(response: IncomingMessage, opened: ClientRequest): Promise<void> {
    const { apiKey } = this.#options;
    let text = "";
    response.setEncoding("utf8");
    try {
      for await (const chunk of response) if (text.length < MAX_REFUSAL_BYTES) text += chunk as string;
    } catch {
      // A partial body is enough for the reason.
    }
    this.#down(opened, refusalOf(response.statusCode ?? 0, text, apiKey), refusals.includes(response.statusCode ?? 0) ? "refused" : "broken");
  }

  /** Checks again after the pending reads of this event-loop tick: a gateway that was itself blocked must not suspect all its nodes. */
  #listenFor(ms: number, opened: ClientRequest): void {
    clearTimeout(this.#silence);
    this.#lateMs = 0;
    const dueMs = performance.now() + ms;
    const timer = setTimeout(() => {
      this.#lateMs = Math.max(0, performance.now() - dueMs);
      setImmediate(() => {
        if (this.#silence === timer) this.#down(opened, `it was silent for ${ms} ms`, "silent");
      });
    }, ms);
    this.#silence = timer;
  }

  #down(opened: ClientRequest, reason: string, how: Down = "broken"): void {
    if (this.#request !== opened) return;
    this.#request = undefined;
    clearTimeout(this.#silence);
    this.#silence = undefined;
    if (how !== "silent") this.#bound.interrupted();
    opened.on("error", () => {});
    opened.destroy();
    if (this.#closed) return;
    this.#options.onDown(reason, how);
    this.#retry = setTimeout(() => this.open(), this.#retryMs);
    this.#retryMs = Math.min(this.#retryMs * 2, MAX_RETRY_MS);
  }

  /** Closes this stream for a reason of the gateway's; it is opened again later. */
  reject(reason: string): void {
    this.#retryMs = MAX_RETRY_MS;
    if (this.#request !== undefined) this.#down(this.#request, reason, "refused");
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#retry);
    if (this.#request !== undefined) this.#down(this.#request, "");
  }
}

/** Answers to a wrong key and to a wrong certificate. */
const refusals: readonly number[] = [401, 403];

/** Describes the error in a sentence, since a bare code says nothing to a client that only requested a sandbox. */
function unreachable(error: NodeJS.ErrnoException): string {
  if (error instanceof PeerRefused) return error.message;
  const { code, message } = error;
  if (code === "ECONNREFUSED") return "no process listens at its address";
  if (code === "EHOSTUNREACH" || code === "ENETUNREACH" || code === "ETIMEDOUT") return `its machine cannot be reached (${code})`;
  if (code === "ECONNRESET") return "it broke off the connection";
  return `it cannot be reached (${code ?? message})`;
}

function isKnown(value: unknown): boolean {
  const kind = (value as { kind?: unknown } | null)?.kind;
  return kind === "state" || kind === "change" || kind === "templates" || kind === "names" || kind === "beat";
}

function refusalOf(status: number, text: string, apiKey: string): string {
  if (status === 404) return "it serves no state for gateways: it runs an older version, or is not a node";
  try {
    const { message, fingerprint } = JSON.parse(text) as { message?: unknown; fingerprint?: unknown };
    if (status === 401 && typeof fingerprint === "string") {
      const others = `its API key has the fingerprint ${fingerprint.slice(0, 64)}, this gateway's has ${fingerprintOf(apiKey, "api-key")}`;
      return `it is refused: ${others}; give all processes of the deployment the same SVC_API_KEY`;
    }
    if (typeof message === "string") return `it answered ${status}: ${message.slice(0, 500)}`;
  } catch {
    // The fallback below answers a body that is not JSON.
  }
  return `it answered ${status}`;
}
