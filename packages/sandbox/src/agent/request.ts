// All requests to a sandbox's envd. Untrusted code may answer in its place, so bytes, interim answers and time are bounded.
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request } from "node:http";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { traceHeaders } from "@svc/kit/trace.ts";
import { dialUnix } from "../runtime/dial.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";

/** Headers, chunk framing and trailers, in addition to the body. */
const FRAMING_BYTES = 64 * 1024;
/** envd sends no interim answers; untrusted code might. */
const MAX_INTERIM = 4;

export type AgentCall = {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal;
};

export type AgentRequest = Omit<AgentCall, "signal"> & {
  readonly body?: string | Buffer;
  /** The time from the connect to the answer's last byte. */
  readonly boundMs: number;
  readonly maxBytes: number;
};

export type AgentAnswer = { readonly code: number; readonly headers: IncomingHttpHeaders; readonly body: Buffer };

/** Returns envd's address. A socket's path is inside the sandbox, so only dialUnix may open it. */
function addressOf({ endpoint }: RuntimeHandle) {
  return endpoint.kind === "tcp"
    ? { host: endpoint.host, port: ENVD_PORT, agent: false as const }
    : { host: "envd", createConnection: () => dialUnix(endpoint.path) };
}

/** Begins a request; the caller writes the body and reads the answer within bounds of its own. @throws when there is no address. */
export function beginCall(
  handle: RuntimeHandle,
  { method, path, headers, signal }: AgentCall,
): { readonly call: ClientRequest; readonly answered: Promise<IncomingMessage> } {
  const stopped = signal === undefined ? {} : { signal };
  const call = request({ ...addressOf(handle), method, path, headers: { ...traceHeaders(), ...headers, connection: "close" }, ...stopped });
  let interim = 0;
  call.on("information", () => {
    if (++interim > MAX_INTERIM) call.destroy(new Error(`it sent more than ${MAX_INTERIM} interim answers to ${path}`));
  });
  const answered = new Promise<IncomingMessage>((resolve, reject) => call.once("response", resolve).on("error", reject));
  answered.catch(() => undefined);
  return { call, answered };
}

/** @throws when no complete answer arrives within the bounds. */
export function requestAgent(handle: RuntimeHandle, { body, boundMs, maxBytes, ...asked }: AgentRequest): Promise<AgentAnswer> {
  return new Promise((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const { call, answered } = beginCall(handle, { ...asked, headers: { ...asked.headers, ...length } });
    const timer = setTimeout(() => end(new Error(`no answer within ${Math.round(boundMs)} ms`)), boundMs);
    call.end(body);
    answered.then((response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > maxBytes || response.socket.bytesRead > maxBytes + FRAMING_BYTES)
          end(new Error(`its answer to ${asked.path} has more than ${maxBytes} bytes`));
        else chunks.push(chunk);
      });
      response.once("end", () => {
        clearTimeout(timer);
        resolve({ code: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) });
      });
      response.once("error", end);
    }, end);

    function end(error: Error): void {
      clearTimeout(timer);
      reject(error);
      call.destroy();
    }
  });
}
