// Engines in pairs that take the parameters of vLLM's NixlConnector and MooncakeConnector and of SGLang: the one that decodes answers only
// once it has the KV cache from the other one.
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export type Connector = "nixl" | "mooncake" | "sglang";
export type PairEngine = {
  readonly name: string;
  readonly url: string;
  readonly bootstrapPort: number;
  /** Bodies of requests for answers, in order. */
  readonly bodies: Body[];
  /** Requests that this engine computed the prompt of, and those that it answered. */
  readonly computed: string[];
  readonly answered: string[];
  /** Answers each request with this status, or breaks its connections (0). */
  fail: number | undefined;
} & AsyncDisposable;
type Body = Record<string, unknown>;

const BLOCK = 16;
const tokensOf = (text: string) => Array.from(text, (character) => character.codePointAt(0) ?? 0);

export async function startPairEngine(name: string, connector: Connector): Promise<PairEngine> {
  const bodies: Body[] = [];
  const computed: string[] = [];
  const answered: string[] = [];
  /** KV caches that wait for the other engine, by what the connector calls them. */
  const kept = new Map<string, (() => void)[] | "there">();
  const prompts: number[][] = [];
  const engineID = `engine-of-${name}`;

  const put = (key: string) => {
    const waiting = kept.get(key);
    kept.set(key, "there");
    if (Array.isArray(waiting)) for (const resolve of waiting) resolve();
  };
  const taken = (key: string) =>
    new Promise<void>((resolve) => {
      const waiting = kept.get(key);
      if (waiting === "there") resolve();
      else kept.set(key, [...(waiting ?? []), resolve]);
    });
  /** Where the other engine takes a KV cache from. */
  const side = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://x");
    if (pathname === "/query") return void json(response, 200, { "0": { engine_id: engineID, worker_addr: { "0": { "0": "tcp://x" } } } });
    void taken(searchParams.get("key") ?? "").then(() => json(response, 200, {}));
  });
  await listening(side);
  const bootstrapPort = (side.address() as AddressInfo).port;

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = (request.url ?? "/").split("?")[0] ?? "/";
    if (path === "/health") return void response.writeHead(200).end();
    if (path === "/v1/models") return json(response, 200, { data: [{ id: "demo", object: "model" }] });
    if (path === "/metrics") return void response.writeHead(200).end("");
    const body = JSON.parse(await textOf(request)) as Body;
    const text = JSON.stringify(body["messages"] ?? body["prompt"]);
    if (path === "/tokenize") return json(response, 200, { tokens: tokensOf(text) });
    if (!path.endsWith("/completions")) return json(response, 404, { error: { message: `no ${path}` } });
    bodies.push(body);
    if (engine.fail === 0) return void request.socket.destroy();
    if (engine.fail !== undefined) return json(response, engine.fail, { error: { message: `${name} fails`, code: engine.fail } });
    const tokens = tokensOf(text);
    const cached = Math.max(0, ...prompts.map((one) => sharedOf(one, tokens)));
    const usage = { prompt_tokens: tokens.length, completion_tokens: 1, prompt_tokens_details: { cached_tokens: cached } };
    const id = String(request.headers["x-request-id"]);
    const params = (body["kv_transfer_params"] ?? {}) as Body;
    const answer = (more: Body = {}) =>
      json(response, 200, { id, object: "chat.completion", choices: [{ index: 0, message: { role: "assistant", content: `from ${name}` } }], usage, ...more });
    if (connector === "sglang") {
      const room = String(body["bootstrap_room"]);
      if (body["bootstrap_port"] === bootstrapPort) {
        computed.push(id);
        prompts.push(tokens);
        put(room);
        return answer();
      }
      await fetched(String(body["bootstrap_host"]), Number(body["bootstrap_port"]), room);
    } else if (params["do_remote_decode"] === true) {
      if (body["max_tokens"] !== 1 || body["stream"] === true) return json(response, 400, { error: { message: "an engine for prefill computes one token" } });
      computed.push(id);
      prompts.push(tokens);
      put(connector === "mooncake" ? String(params["transfer_id"]) : id);
      return answer({
        kv_transfer_params:
          connector === "mooncake"
            ? null
            : {
                do_remote_prefill: true,
                do_remote_decode: false,
                remote_engine_id: engineID,
                remote_block_ids: [[1, 2]],
                remote_request_id: id,
                remote_host: "127.0.0.1",
                remote_port: bootstrapPort,
              },
      });
    } else if (params["do_remote_prefill"] === true) {
      const isNixl = connector === "nixl";
      const { hostname, port } = isNixl
        ? { hostname: String(params["remote_host"]), port: String(params["remote_port"]) }
        : new URL(String(params["remote_bootstrap_addr"]));
      await fetched(hostname, Number(port), String(isNixl ? params["remote_request_id"] : params["transfer_id"]));
    } else return json(response, 500, { error: { message: `${name} was told nothing of a partner` } });
    answered.push(id);
    if (body["stream"] === true) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      return void response.end(`data: ${JSON.stringify({ id, choices: [{ index: 0, delta: { content: `from ${name}` } }] })}\n\ndata: [DONE]\n\n`);
    }
    answer();
  }

  const server = createServer((request, response) => {
    handle(request, response).catch((error: Error) => json(response, 400, { error: { message: error.message } }));
  });
  await listening(server);
  const engine: PairEngine = {
    name,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    bootstrapPort,
    bodies,
    computed,
    answered,
    fail: undefined,
    async [Symbol.asyncDispose]() {
      for (const one of [server, side]) {
        one.closeAllConnections();
        one.close();
      }
    },
  };
  return engine;
}

const listening = (server: Server) => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

async function fetched(host: string, port: number, key: string): Promise<void> {
  const answer = await fetch(`http://${host}:${port}/kv?key=${encodeURIComponent(key)}`, { signal: AbortSignal.timeout(60_000) });
  if (answer.status !== 200) throw new Error(`no KV cache of ${key}`);
  await answer.text();
}

async function textOf(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request.setEncoding("utf8") as AsyncIterable<string>) text += chunk;
  return text;
}

function json(response: ServerResponse, status: number, value: unknown): void {
  if (!response.destroyed) response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(value));
}

function sharedOf(one: readonly number[], other: readonly number[]): number {
  let at = 0;
  while (at < Math.min(one.length, other.length - 1) && one[at] === other[at]) at++;
  return Math.floor(at / BLOCK) * BLOCK;
}
