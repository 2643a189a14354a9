// HTTP/2 through an opened connection: each stream of the client becomes one of the upstream's session, with its trailers and its reset code.
import {
  type ClientHttp2Session,
  connect,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Stream,
} from "node:http2";
import type { TLSSocket } from "node:tls";
import { hostAsked } from "./headers.ts";
import { type Opened, refusedBody } from "./opened.ts";

/** A window of 64 KiB would bound a stream's throughput on a link of any length. */
const WINDOW_BYTES = 4 * 1024 * 1024;
const settings = { initialWindowSize: WINDOW_BYTES, enablePush: false } as const;

export function serveHttp2(client: TLSSocket, opened: Opened): void {
  const upstream = connect(`https://${opened.name}`, { createConnection: () => opened.upstream, settings });
  const session = performServerHandshake(client, { settings });
  const end = (): void => {
    upstream.destroy();
    session.destroy();
  };
  for (const each of [upstream, session]) each.on("error", end).on("close", end);
  upstream.on("connect", () => upstream.setLocalWindowSize(WINDOW_BYTES));
  session.setLocalWindowSize(WINDOW_BYTES);
  // The client opens no further streams, and those that it has complete.
  upstream.on("goaway", (code) => session.goaway(code));
  session.on("stream", (stream, headers, flags) => void forward(stream, headers, (flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0, upstream, opened));
}

async function forward(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, isEnded: boolean, upstream: ClientHttp2Session, opened: Opened): Promise<void> {
  stream.on("error", () => {});
  const refuse = (status: number, why: string): void => {
    if (stream.destroyed || stream.headersSent) {
      stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      return;
    }
    stream.respond({ ":status": status, "content-type": "text/plain; charset=utf-8" });
    stream.end(refusedBody(why));
  };
  const admitted = await opened.admit(hostAsked([headers[":authority"], headers.host].flatMap((named) => named ?? [])));
  if ("refused" in admitted) return refuse(admitted.status, admitted.refused);
  if (headers[":method"] === "CONNECT") return refuse(405, "CONNECT is not offered to hosts with rules");
  if (stream.destroyed) return;
  if (upstream.destroyed || upstream.closed) return stream.close(constants.NGHTTP2_REFUSED_STREAM);

  const sent: OutgoingHttpHeaders = { ...headers };
  for (const [name, value] of admitted.headers) sent[name] = value;
  const there = upstream.request(sent, { endStream: isEnded, waitForTrailers: !isEnded });
  there.on("error", () => {});
  let trailers: OutgoingHttpHeaders = {};
  let answerTrailers: OutgoingHttpHeaders = {};
  stream.on("trailers", (received) => (trailers = { ...received }));
  there.on("wantTrailers", () => there.sendTrailers(trailers));
  there.on("headers", (interim) => {
    if (!stream.destroyed && !stream.headersSent) stream.additionalHeaders({ ...interim });
  });
  there.on("response", ({ "alt-svc": _, ...answered }) => {
    if (stream.destroyed) return;
    stream.respond({ ...answered }, { waitForTrailers: true });
    there.pipe(stream);
  });
  there.on("trailers", (received) => (answerTrailers = { ...received }));
  stream.on("wantTrailers", () => stream.sendTrailers(answerTrailers));
  there.on("close", () => {
    if (stream.closed) return;
    if (there.rstCode !== constants.NGHTTP2_NO_ERROR) stream.close(there.rstCode);
    else if (!stream.headersSent) refuse(502, `${opened.name} ended the stream without an answer`);
  });
  stream.on("close", () => {
    if (!there.closed) there.close(stream.rstCode === constants.NGHTTP2_NO_ERROR ? constants.NGHTTP2_CANCEL : stream.rstCode);
  });
  if (!isEnded) stream.pipe(there);
}
