// One call of gRPC: a stream of the client's session joined with one to the application, both ways, with trailers and resets.
import { type ClientHttp2Stream, constants, type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import { hopNames } from "../proxy/request-head.ts";
import { answerHeaders, type Closing, closingOf, type ExchangeParts } from "./stream-end.ts";
import { TunnelRefused, type Tunnels } from "./tunnels.ts";

/** The status of gRPC for an answer of the proxy's; any other one is 2, unknown. */
const codes: Readonly<Record<number, number>> = { 400: 3, 401: 16, 403: 7, 404: 12, 421: 14, 429: 8, 502: 14, 503: 14, 504: 14 };
const UNKNOWN = 2;
const END_STREAM = 1;
const MAX_MESSAGE = 1_000;
const notForwarded: ReadonlySet<string> = new Set([...hopNames, "host"].filter((name) => name !== "content-length" && name !== "te"));

export function isGrpc(headers: IncomingHttpHeaders): boolean {
  return headers[":method"] === "POST" && /^application\/grpc(?=[+; ]|$)/.test(headers["content-type"] ?? "");
}

export class GrpcCall {
  readonly #parts: ExchangeParts;
  readonly #tunnels: Tunnels;
  readonly #closing: Closing;
  #upstream: ClientHttp2Stream | undefined;

  constructor(parts: ExchangeParts, tunnels: Tunnels, onClose: () => void) {
    this.#parts = parts;
    this.#tunnels = tunnels;
    this.#closing = closingOf(parts.stream, () => {
      this.#upstream?.close(constants.NGHTTP2_CANCEL);
      onClose();
    });
    setImmediate(() => {
      if (!parts.stream.destroyed && !parts.stream.aborted) void this.#begin();
    });
  }

  get wasReset(): boolean {
    return this.#closing.wasReset;
  }

  async #begin(): Promise<void> {
    const { stream, headers, raw, origin, front } = this.#parts;
    const authority = headers[":authority"] ?? headers.host ?? "";
    const path = headers[":path"] ?? "/";
    const known: readonly string[] = front.head.names.names.slice(hopNames.length);
    const credentials: string[] = [];
    for (let at = 0; at < raw.length; at += 2) if (known.includes(raw[at] as string)) credentials.push(raw[at] as string, raw[at + 1] as string);
    try {
      const tunnel = await this.#tunnels.take({ authority, path, credentials });
      stream.once("close", tunnel.done);
      if (stream.destroyed) {
        tunnel.done();
        return;
      }
      const outgoing: Record<string, string | string[]> = {};
      for (let at = 0; at < raw.length; at += 2) {
        const [name, value] = [raw[at] as string, raw[at + 1] as string];
        if (name.startsWith(":") || notForwarded.has(name) || tunnel.drops.has(name)) continue;
        const before = outgoing[name];
        outgoing[name] = before === undefined ? value : [before, value].flat();
      }
      const own = { ":method": "POST", ":path": path, ":scheme": "http", ":authority": tunnel.host ?? authority };
      const added = { "x-forwarded-for": origin.peer, "x-forwarded-proto": "https", ...(tunnel.host === undefined ? {} : { "x-forwarded-host": authority }) };
      this.#join(tunnel.session.request({ ...outgoing, ...own, ...added }, { endStream: stream.endAfterHeaders }));
    } catch (error) {
      if (error instanceof TunnelRefused) this.#refuse(error.status, error.message);
      else this.#refuse(502, `The connection to the application broke: ${(error as Error).message}`);
    }
  }

  #join(upstream: ClientHttp2Stream): void {
    const { stream } = this.#parts;
    const closing = this.#closing;
    this.#upstream = upstream;
    let trailers: OutgoingHttpHeaders = {};
    upstream.on("error", () => {});
    upstream.once("response", (headers, flags) => {
      if (stream.destroyed) return;
      const endStream = (flags & END_STREAM) !== 0;
      if (endStream) closing.hasEnded = true;
      stream.respond(forwarded(headers), { endStream, waitForTrailers: !endStream });
      // Data of the same packet may come before this event, and would begin an answer of its own.
      upstream.on("data", (bytes: Buffer) => {
        if (!stream.write(bytes)) upstream.pause();
      });
    });
    upstream.once("trailers", (given) => {
      trailers = forwarded(given);
    });
    stream.once("wantTrailers", () => {
      if (!closing.isCut) stream.sendTrailers(trailers);
    });
    stream.on("drain", () => upstream.resume());
    upstream.once("end", () => {
      if (upstream.rstCode !== constants.NGHTTP2_NO_ERROR || !stream.headersSent) return;
      closing.hasEnded = true;
      stream.end();
    });
    upstream.once("close", () => closing.cut(upstream.rstCode || constants.NGHTTP2_INTERNAL_ERROR));
    if (!stream.endAfterHeaders) stream.pipe(upstream);
  }

  /** Answers as gRPC does: the status of the call is in the trailers, and its message says why. */
  #refuse(status: number, message: string): void {
    const { stream } = this.#parts;
    if (stream.destroyed || stream.headersSent) return;
    this.#closing.hasEnded = true;
    const text = encodeURIComponent(message.slice(0, MAX_MESSAGE)).replaceAll("%20", " ");
    respondAtOnce(stream, { ":status": 200, "content-type": "application/grpc", "grpc-status": String(codes[status] ?? UNKNOWN), "grpc-message": text });
  }
}

function respondAtOnce(stream: ServerHttp2Stream, headers: OutgoingHttpHeaders): void {
  stream.respond(headers, { endStream: true });
  stream.resume();
}

function forwarded(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const raw = Object.entries(headers).flatMap(([name, value]) =>
    value === undefined || name.startsWith(":") ? [] : [value].flat().flatMap((each) => [name, String(each)]),
  );
  const status = Number(headers[":status"]);
  const kept = answerHeaders(status, raw);
  // Trailers have no status.
  if (headers[":status"] === undefined) delete kept[":status"];
  return kept;
}
