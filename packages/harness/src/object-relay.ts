// A relay in front of a test's S3-compatible server that disturbs requests: busy, no answer, cut, or executed without an answer.
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export type Trouble = "none" | "busy" | "hang" | "down" | "lost";

export type ObjectRelay = AsyncDisposable & {
  readonly endpoint: string;
  /** Sets the trouble of further requests; with `method`, only of those with this method. */
  trouble(trouble: Trouble, method?: string): void;
  /** The number of requests so far. */
  readonly requests: number;
};

export async function startObjectRelay(target: string): Promise<ObjectRelay> {
  let [current, only, requests]: [Trouble, string | undefined, number] = ["none", undefined, 0];
  const server = createServer((request, answer) => {
    requests++;
    const trouble = only === undefined || only === request.method ? current : "none";
    if (trouble === "down") return void request.socket.destroy();
    if (trouble === "hang") return;
    if (trouble === "busy") return void request.resume().once("end", () => answer.writeHead(503).end("<Error><Code>SlowDown</Code></Error>"));
    pass(target, request, answer, trouble === "lost");
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    trouble(trouble, method) {
      [current, only] = [trouble, method];
      if (trouble !== "none") server.closeIdleConnections();
    },
    get requests() {
      return requests;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

/** Passes the head unchanged, because the signature covers the Host header. */
function pass(target: string, request: IncomingMessage, answer: ServerResponse, isLost: boolean): void {
  const { hostname, port } = new URL(target);
  const onward = httpRequest({ host: hostname, port, method: request.method, path: request.url, headers: request.headers, agent: false }, (reply) => {
    if (isLost) return void reply.resume().once("end", () => request.socket.destroy());
    answer.writeHead(reply.statusCode ?? 502, reply.headers);
    reply.pipe(answer);
  });
  onward.once("error", () => request.socket.destroy());
  request.once("error", () => onward.destroy()).pipe(onward);
}
