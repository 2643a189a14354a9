// Sends calls to servers of this deployment over connections that are kept: a request after a pause does not wait for a new one.
import { Agent, type ClientRequest, type IncomingMessage, request } from "node:http";
import type { Send, Sent } from "@svc/contract/call.ts";

export interface KeptCalls {
  readonly send: Send;
  /** The server behind this URL is lost: no connection to it is used again. */
  drop(baseURL: string): void;
  close(): void;
}

/** Code of a failure: no byte of the request has left. */
export const NOT_CONNECTED = "NOT_CONNECTED";

/** Below the time after which a node closes an idle connection. */
const IDLE_MS = 30_000;
const CONNECT_MS = 10_000;
const IDLE_PER_SERVER = 64;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export function openKeptCalls(): KeptCalls {
  const agents = new Map<string, Agent>();

  function agentOf(origin: string): Agent {
    const known = agents.get(origin);
    if (known !== undefined) return known;
    const agent = new Agent({ keepAlive: true, timeout: IDLE_MS, maxFreeSockets: IDLE_PER_SERVER });
    agents.set(origin, agent);
    return agent;
  }

  function drop(baseURL: string): void {
    const { origin } = new URL(baseURL);
    const agent = agents.get(origin);
    if (agent === undefined) return;
    agents.delete(origin);
    // Those in use end with their calls, which the caller aborts.
    for (const sockets of Object.values(agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
    agent.maxFreeSockets = 0;
  }

  return {
    async send({ url, method, headers, body, signal }) {
      const parsed = new URL(url);
      const length = body === undefined ? {} : { "content-length": Buffer.byteLength(body) };
      const call = request(parsed, { method, headers: { ...headers, ...length }, agent: agentOf(parsed.origin), signal });
      const answer = answerTo(call);
      call.end(body);
      return answer;
    },
    drop,
    close() {
      for (const agent of agents.values()) agent.destroy();
      agents.clear();
    },
  };
}

/** @throws with the code NOT_CONNECTED where there was no connection, else the connection's own error. */
async function answerTo(call: ClientRequest): Promise<Sent> {
  let isConnected = false;
  const connecting = setTimeout(() => call.destroy(new Error(`no connection within ${CONNECT_MS} ms`)), CONNECT_MS);
  const connected = () => {
    isConnected = true;
    clearTimeout(connecting);
  };
  call.once("socket", (socket) => (socket.connecting ? socket.once("connect", connected) : connected()));
  try {
    const response = await new Promise<IncomingMessage>((resolve, reject) => call.once("response", resolve).on("error", reject));
    return { status: response.statusCode ?? 0, headers: headersOf(response), text: await textOf(response) };
  } catch (error) {
    throw isConnected ? error : Object.assign(new Error((error as Error).message, { cause: error }), { code: NOT_CONNECTED });
  } finally {
    clearTimeout(connecting);
  }
}

function headersOf({ headers }: IncomingMessage): Headers {
  return new Headers(Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().map((each): [string, string] => [name, each])));
}

async function textOf(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new Error(`an answer of more than ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}
