// A receiver of webhooks for tests: records each delivery, and answers as the test says.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export type Delivery = {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly event: Record<string, unknown>;
  readonly status: number;
};

export type Receiver = AsyncDisposable & {
  readonly url: string;
  readonly deliveries: readonly Delivery[];
  /** The status of the following answers; with 0 the receiver does not answer. */
  answer: number;
};

export async function startReceiver(): Promise<Receiver> {
  const deliveries: Delivery[] = [];
  let answer = 200;
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (text: string) => void (body += text));
    request.on("end", () => {
      deliveries.push({ headers: request.headers as Record<string, string>, body, event: JSON.parse(body) as Record<string, unknown>, status: answer });
      if (answer === 0) return;
      response.writeHead(answer, answer === 302 ? { location: "http://127.0.0.1:1/" } : {}).end();
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    deliveries,
    get answer() {
      return answer;
    },
    set answer(status) {
      answer = status;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}
