// A client's stream of HTTP/2 and how it ends: in order, cut off because its answer is incomplete, or reset by the client.
import { constants, type IncomingHttpHeaders, type OutgoingHttpHeaders, type ServerHttp2Stream } from "node:http2";
import type { Front } from "../proxy/front.ts";

/** A client's connection, decrypted. */
export type Origin = { readonly peer: string; readonly serves: (host: string) => boolean; readonly reset: () => void };

export type ExchangeParts = {
  readonly stream: ServerHttp2Stream;
  readonly headers: IncomingHttpHeaders;
  /** Names and values in turn, as the client sent them. */
  readonly raw: readonly string[];
  readonly origin: Origin;
  readonly front: Front;
};

export type Closing = {
  /** Set once the whole answer has been handed over. */
  hasEnded: boolean;
  readonly isCut: boolean;
  /** True if the client reset the stream before it had the whole answer. */
  readonly wasReset: boolean;
  /** Resets the stream, so that the client does not take a part of the answer for the whole. */
  cut(code?: number): void;
};

export function closingOf(stream: ServerHttp2Stream, onClose: () => void): Closing {
  let [isCut, wasReset] = [false, false];
  const closing = {
    hasEnded: false,
    get isCut() {
      return isCut;
    },
    get wasReset() {
      return wasReset;
    },
    cut(code: number = constants.NGHTTP2_INTERNAL_ERROR) {
      if (closing.hasEnded || stream.destroyed) return;
      closing.hasEnded = true;
      isCut = true;
      stream.close(code);
    },
  };
  stream.on("error", () => {});
  stream.once("aborted", () => {
    wasReset = !closing.hasEnded;
  });
  stream.once("close", () => {
    wasReset ||= stream.rstCode === constants.NGHTTP2_CANCEL && !closing.hasEnded;
    onClose();
  });
  return closing;
}

/** Headers that HTTP/2 does not have; an upstream's are dropped. */
export const ofConnection: ReadonlySet<string> = new Set(["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "http2-settings"]);

export function answerHeaders(status: number, raw: readonly string[]): OutgoingHttpHeaders {
  const headers: Record<string, string | string[] | number> = { ":status": status };
  for (let at = 0; at < raw.length; at += 2) {
    const name = (raw[at] as string).toLowerCase();
    const value = raw[at + 1] as string;
    if (ofConnection.has(name)) continue;
    const known = headers[name];
    headers[name] = known === undefined ? value : Array.isArray(known) ? [...known, value] : [String(known), value];
  }
  return headers as OutgoingHttpHeaders;
}
