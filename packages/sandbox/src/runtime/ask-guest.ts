// One request to a sandbox's envd. Code of strangers may answer in its place: bytes, interim answers and time are bounded.
import { type IncomingHttpHeaders, request } from "node:http";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { dialUnix } from "./dial.ts";
import type { RuntimeHandle } from "./runtime.ts";

/** Heads, chunk framing and trailers, on top of the body. */
const FRAMING_BYTES = 64 * 1024;
/** envd sends none. */
const MAX_INTERIM = 4;

export type GuestRequest = {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
  /** From the dial to the answer's last byte. */
  readonly boundMs: number;
  readonly maxBytes: number;
};

export type GuestAnswer = { readonly code: number; readonly headers: IncomingHttpHeaders; readonly body: Buffer };

/** How envd is dialled. A socket's name lies inside the sandbox: only dialUnix may open it. */
export function envdOf({ endpoint }: RuntimeHandle) {
  return endpoint.kind === "tcp"
    ? { host: endpoint.host, port: ENVD_PORT, agent: false as const }
    : { host: "envd", createConnection: () => dialUnix(endpoint.path) };
}

/** @throws when no whole answer comes within the bounds. */
export function askGuest(handle: RuntimeHandle, { method, path, headers = {}, body, boundMs, maxBytes }: GuestRequest): Promise<GuestAnswer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    let interim = 0;
    const call = request({ ...envdOf(handle), method, path, headers: { ...headers, ...length, connection: "close" } }, (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > maxBytes || response.socket.bytesRead > maxBytes + FRAMING_BYTES) end(new Error(`its answer to ${path} has more than ${maxBytes} bytes`));
        else chunks.push(chunk);
      });
      response.once("end", () => {
        clearTimeout(timer);
        resolve({ code: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) });
      });
      response.once("error", end);
    });
    call.on("information", () => {
      if (++interim > MAX_INTERIM) end(new Error(`it sent more than ${MAX_INTERIM} interim answers to ${path}`));
    });
    const timer = setTimeout(() => end(new Error(`no answer within ${Math.round(boundMs)} ms`)), boundMs);
    call.once("error", end);
    call.end(body);

    function end(error: Error): void {
      clearTimeout(timer);
      reject(error);
      call.on("error", () => {}).destroy();
    }
  });
}
