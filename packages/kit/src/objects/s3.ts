// Objects on an S3-compatible server: five calls over HTTP/1.1 on persistent connections.
import { createHash } from "node:crypto";
import { type IncomingMessage, Agent as PlainAgent, request as plainRequest } from "node:http";
import { Agent as TLSAgent, request as tlsRequest } from "node:https";
import { Failure, fail } from "@svc/contract/failures.ts";
import { checkKey, type Objects, tooLarge } from "./objects.ts";
import { ATTEMPTS, retried, Unanswered } from "./retry.ts";
import { listingOf, refusalOf } from "./s3-answers.ts";
import type { Credentials } from "./s3-credentials.ts";
import { encoded, queryOf, signed } from "./s3-sign.ts";

export type S3Options = {
  /** The location, for messages. */
  readonly url: string;
  readonly bucket: string;
  readonly prefix: string;
  readonly endpoint: string;
  readonly region: string;
  /** True if the bucket is part of the path rather than of the host name. */
  readonly pathStyle: boolean;
  readonly concurrency: number;
  readonly credentials: () => Credentials;
  readonly bounds?: S3Bounds;
};

/** Limits of a server's silence, of one attempt, and of the number of attempts. */
export type S3Bounds = { readonly silenceMs: number; readonly callMs: number; readonly attempts: number };

type Call = {
  readonly method: "GET" | "PUT" | "HEAD" | "DELETE";
  readonly key: string | undefined;
  readonly query?: Readonly<Record<string, string>>;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
  readonly sha256?: string | undefined;
  /** The limit of the answer's body; the rest is not read. */
  readonly maxBytes: number;
};
type Answer = { readonly status: number; readonly headers: IncomingMessage["headers"]; readonly body: Buffer };

const BOUNDS: S3Bounds = { silenceMs: 20_000, callMs: 120_000, attempts: ATTEMPTS };
const MAX_REFUSAL_BYTES = 64 * 1024;
/** Servers refuse the signature of a clock that is further off. */
const MAX_APART_MS = 15 * 60_000;
const MAX_LISTING_BYTES = 16 * 2 ** 20;
const PAGE_KEYS = "1000";
const EMPTY_SHA256 = createHash("sha256").digest("hex");
/** Statuses of a server that is temporarily unable to answer. */
const PASSING = new Set([408, 425, 429, 500, 502, 503, 504]);

export async function openS3Objects(options: S3Options): Promise<Objects> {
  const { silenceMs, callMs, attempts } = options.bounds ?? BOUNDS;
  const endpoint = new URL(options.endpoint);
  const isTLS = endpoint.protocol === "https:";
  const request = isTLS ? tlsRequest : plainRequest;
  const agent = new (isTLS ? TLSAgent : PlainAgent)({ keepAlive: true, maxSockets: options.concurrency });
  const host = options.pathStyle ? endpoint.host : `${options.bucket}.${endpoint.host}`;
  const below = options.prefix === "" ? "" : `${options.prefix}/`;
  // We read the credentials at startup, so that a missing setting is refused there and not at the first pause.
  options.credentials();

  function pathOf(key: string | undefined): string {
    const parts = [...(options.pathStyle ? [options.bucket] : []), ...(key === undefined ? [] : `${below}${checkKey(key)}`.split("/"))];
    return `/${parts.map(encoded).join("/")}`;
  }

  function send(call: Call): Promise<Answer> {
    const { method, query = {}, body } = call;
    const path = pathOf(call.key);
    const bodySHA256 = body === undefined ? EMPTY_SHA256 : (call.sha256 ?? createHash("sha256").update(body).digest("hex"));
    const length = method === "PUT" ? { "content-length": String(body?.length ?? 0) } : {};
    const unsigned = { method, host, path, query, headers: { ...call.headers }, bodySHA256 };
    const headers = { ...signed(unsigned, options.credentials(), options.region, new Date()), ...length };
    const search = queryOf(query);
    return new Promise((resolve, reject) => {
      const sent = request(
        {
          agent,
          method,
          host: endpoint.hostname,
          port: endpoint.port,
          servername: endpoint.hostname,
          path: search === "" ? path : `${path}?${search}`,
          headers,
        },
        (answer) => {
          // A refusal carries a short message, which must not be limited by the object's expected size.
          const maxBytes = answer.statusCode !== undefined && answer.statusCode < 300 ? call.maxBytes : MAX_REFUSAL_BYTES;
          read(answer, maxBytes, call.key ?? "").then((text) => resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: text }), reject);
        },
      );
      sent.setTimeout(silenceMs, () => sent.destroy(new Error(`no data within ${silenceMs / 1000} s`)));
      const timer = setTimeout(() => sent.destroy(new Error(`not finished within ${callMs / 1000} s`)), callMs);
      sent.once("close", () => clearTimeout(timer));
      sent.once("error", (error) => reject(error instanceof Failure ? error : new Unanswered(error.message, { cause: error })));
      sent.end(body);
    });
  }

  /** Returns undefined for 404. */
  function call(what: Call): Promise<Answer | undefined> {
    const name = `${what.method} ${what.key ?? "a listing"} at ${options.endpoint}`;
    return retried(
      name,
      async () => {
        const answer = await send(what);
        if (answer.status >= 200 && answer.status < 300) return answer;
        const refusal = refusalOf(answer.body.toString("utf8"));
        if (answer.status === 404 && refusal.code !== "NoSuchBucket") return undefined;
        const says = `${answer.status}${refusal.code === "" ? "" : ` ${refusal.code}`}${refusal.message === "" ? "" : `: ${refusal.message}`}`;
        if (PASSING.has(answer.status)) throw new Unanswered(says);
        const apartMs = Date.now() - Date.parse(String(answer.headers.date));
        if (refusal.code === "RequestTimeTooSkewed" || (answer.status === 403 && Math.abs(apartMs) > MAX_APART_MS))
          fail(
            "OBJECTS_UNAVAILABLE",
            `${name}: refused with ${says}; this machine's clock is ${Math.round(Math.abs(apartMs) / 1000)} s ${apartMs > 0 ? "ahead of" : "behind"} the storage's, and signatures last 15 minutes: set the clock, for example by NTP`,
          );
        if (answer.status === 401 || answer.status === 403)
          fail("OBJECTS_UNAVAILABLE", `${name}: refused with ${says}; check the credentials and their permissions`);
        return fail("OBJECTS_UNAVAILABLE", `${name}: ${says}`);
      },
      attempts,
    );
  }

  return {
    url: options.url,
    async put(key, body, sha256) {
      await call({ method: "PUT", key, body, sha256, maxBytes: MAX_REFUSAL_BYTES });
    },
    async get(key, maxBytes, range) {
      if (range !== undefined && range.end <= range.start) return Buffer.alloc(0);
      const headers = range === undefined ? {} : { range: `bytes=${range.start}-${range.end - 1}` };
      return (await call({ method: "GET", key, headers, maxBytes }))?.body;
    },
    async head(key) {
      const answer = await call({ method: "HEAD", key, maxBytes: 0 });
      if (answer === undefined) return undefined;
      const { "content-length": length = "0", "last-modified": modified = "" } = answer.headers;
      return { key, sizeBytes: Number(length), modifiedAtMs: Date.parse(modified) };
    },
    async *list(prefix) {
      let token: string | undefined;
      do {
        const query = { "list-type": "2", "encoding-type": "url", "max-keys": PAGE_KEYS, prefix: `${below}${prefix}` };
        const more: Record<string, string> = token === undefined ? {} : { "continuation-token": token };
        const answer = await call({ method: "GET", key: undefined, query: { ...query, ...more }, maxBytes: MAX_LISTING_BYTES });
        if (answer === undefined) return fail("OBJECTS_UNAVAILABLE", `${options.url} cannot be listed: there is no such bucket`);
        const page = listingOf(answer.body.toString("utf8"));
        for (const each of page.objects) if (each.key.startsWith(below)) yield { ...each, key: each.key.slice(below.length) };
        token = page.next;
      } while (token !== undefined);
    },
    async delete(key) {
      await call({ method: "DELETE", key, maxBytes: MAX_REFUSAL_BYTES });
    },
    async close() {
      agent.destroy();
    },
  };
}

async function read(answer: IncomingMessage, maxBytes: number, key: string): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  const stated = Number(answer.headers["content-length"] ?? 0);
  try {
    if (answer.statusCode !== undefined && answer.statusCode < 300 && answer.complete === false && stated > maxBytes && maxBytes > 0)
      tooLarge(key, stated, maxBytes);
    for await (const chunk of answer) {
      size += (chunk as Buffer).length;
      if (size > maxBytes) tooLarge(key, size, maxBytes);
      chunks.push(chunk as Buffer);
    }
  } catch (error) {
    answer.destroy();
    throw error instanceof Failure ? error : new Unanswered(`the answer broke off after ${size} bytes: ${(error as Error).message}`, { cause: error });
  }
  return Buffer.concat(chunks);
}
