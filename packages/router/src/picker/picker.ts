// The endpoint picker of the Gateway API Inference Extension: a gateway asks it over Envoy's external processing which engine a request goes to.
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { loadPackageDefinition, Server, ServerCredentials, type ServerDuplexStream, type ServerUnaryCall, type sendUnaryData } from "@grpc/grpc-js";
import { fromJSON } from "@grpc/proto-loader";
import { fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Bodies } from "../bodies.ts";
import { Ending } from "../ending.ts";
import type { Engine } from "../engine.ts";
import type { Placed } from "../placed.ts";
import type { Placement } from "../placement.ts";
import type { AdmissionQueue } from "../queue.ts";
import { Refusal } from "../refusals.ts";
import { countPrediction, type RouterMetrics } from "../router-metrics.ts";
import type { Seeker } from "../seek.ts";
import { Exchange, type Picked } from "./exchange.ts";
import { messages, type ProcessingRequest, type ProcessingResponse } from "./messages.ts";

const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;
/** Further engines that a gateway may try, in this order, if the first one cannot be reached. */
const FALLBACKS = 2;
const ADDRESS_MS = 30_000;
const STOP_MS = 5_000;
const SERVING = 1;
const NOT_SERVING = 2;
const WATCH_MS = 1_000;

export type PickerOptions = {
  readonly listen: { readonly host: string; readonly port: number };
  readonly engines: readonly Engine[];
  readonly seeker: Seeker;
  readonly placement: Placement;
  readonly queue: AdmissionQueue<Placed>;
  readonly bodies: Bodies;
  readonly metrics: RouterMetrics;
  readonly explain: boolean;
  readonly log: Log;
};
export type Picker = { readonly port: number; close(): Promise<void> };

/** Numbers as numbers and bytes as Buffers, so that messages are plain objects; what a message lacks is absent. */
const descriptor = fromJSON(messages as Parameters<typeof fromJSON>[0], { keepCase: true, longs: Number, bytes: Buffer, oneofs: false });

type Service = { readonly service: Parameters<Server["addService"]>[0] };
type Loaded = { envoy: { service: { ext_proc: { v3: { ExternalProcessor: Service } } } }; grpc: { health: { v1: { Health: Service } } } };
type HealthCall = ServerUnaryCall<{ service?: string }, { status: number }>;

export async function openPicker(options: PickerOptions): Promise<Picker> {
  const { listen, engines, log } = options;
  const addresses = new Addresses();
  const server = new Server({ "grpc.max_receive_message_length": MAX_MESSAGE_BYTES, "grpc.max_send_message_length": MAX_MESSAGE_BYTES });
  const { envoy, grpc } = loadPackageDefinition(descriptor) as unknown as Loaded;
  server.addService(envoy.service.ext_proc.v3.ExternalProcessor.service, {
    Process: (stream: ServerDuplexStream<ProcessingRequest, ProcessingResponse>) => process(options, addresses, stream),
  });
  const status = () => (engines.some(({ unfit }) => unfit === undefined) ? SERVING : NOT_SERVING);
  server.addService(grpc.health.v1.Health.service, {
    Check: (_: HealthCall, callback: sendUnaryData<{ status: number }>) => callback(null, { status: status() }),
    Watch(stream: { write(message: { status: number }): void; on(event: "cancelled" | "close", listener: () => void): void }) {
      let last = status();
      stream.write({ status: last });
      const timer = setInterval(() => {
        const now = status();
        if (now !== last) stream.write({ status: now });
        last = now;
      }, WATCH_MS);
      stream.on("cancelled", () => clearInterval(timer));
      stream.on("close", () => clearInterval(timer));
    },
  });
  const address = `${listen.host.includes(":") ? `[${listen.host}]` : listen.host}:${listen.port}`;
  const port = await new Promise<number>((resolve, reject) =>
    server.bindAsync(address, ServerCredentials.createInsecure(), (error, bound) => (error === null ? resolve(bound) : reject(error))),
  ).catch((error: Error) => fail("SETTING_INVALID", `router.picker: ${address} cannot listen there: ${error.message}`));
  log.info({ picker: port }, "the endpoint picker is ready");
  return {
    port,
    async close() {
      const timer = setTimeout(() => server.forceShutdown(), STOP_MS);
      await new Promise<void>((resolve) => server.tryShutdown(() => resolve()));
      clearTimeout(timer);
    },
  };
}

function process(options: PickerOptions, addresses: Addresses, stream: ServerDuplexStream<ProcessingRequest, ProcessingResponse>): void {
  const { bodies, metrics, log } = options;
  const gone = new Ending();
  let path = "/";
  let isOver = false;
  let promptTokens: Awaited<ReturnType<Seeker["seek"]>>["tokens"] | undefined;
  const exchange = new Exchange({
    hold: (chunks) => bodies.collect(chunks),
    async pick(request) {
      path = request.path;
      const { picked, tokens } = await pick(options, addresses, request, gone);
      if (isOver) {
        picked.placed.end();
        throw new Refusal("client_gone", "the gateway gave the request up");
      }
      promptTokens = tokens;
      return picked;
    },
    send(response) {
      if (isOver) return;
      if (response.immediateResponse !== undefined) metrics.refused.inc({ code: response.immediateResponse.details });
      stream.write(response);
    },
    onError: (error) => log.error({ err: error, path }, "a gateway's request failed"),
    onOver({ placed }, scan, status) {
      metrics.requests.inc({ path: "picker", engine: placed.engine.name, code: status === 0 ? "unknown" : String(status) });
      if (status !== 200) return;
      const responseID = path === "/v1/responses" ? scan.responseID() : undefined;
      if (responseID !== undefined) options.seeker.keeps(responseID, placed.engine);
      if (promptTokens !== undefined)
        countPrediction(metrics, promptTokens, placed.expectedCached, placed.prefill === undefined ? scan.usage().cachedTokens : undefined);
    },
  });
  const end = () => {
    if (isOver) return;
    isOver = true;
    gone.end();
    exchange.end();
    options.queue.pump();
  };
  stream.on("data", (message: ProcessingRequest) => {
    try {
      exchange.take(message);
    } catch (error) {
      log.error({ err: error }, "a message of the gateway cannot be handled");
      stream.destroy(error as Error);
    }
  });
  stream.on("end", () => {
    end();
    stream.end();
  });
  stream.on("cancelled", end);
  stream.on("error", end);
}

type Request = Parameters<ConstructorParameters<typeof Exchange>[0]["pick"]>[0];

async function pick(options: PickerOptions, addresses: Addresses, request: Request, ending: Ending) {
  const { engines, seeker, placement, queue, explain, log } = options;
  await Promise.all(engines.map((engine) => addresses.of(engine)));
  const sought = await seeker.seek(request, request.path, request.body);
  const outside = new Set<Engine>();
  if (request.among !== undefined) for (const engine of engines) if (!request.among.includes(addresses.known(engine))) outside.add(engine);
  if (outside.size === engines.length)
    throw new Refusal("no_engine", `none of the ${request.among?.length} endpoints that the gateway allows is an engine that is known here`, 1);
  const placed = await queue.enter(() => placement.place(sought, outside, true), ending, sought.prompt.priority);
  if (explain) log.info({ path: request.path, engine: placed.engine.name, considered: placed.considered }, "picked");
  const others = placed.considered
    .filter(({ engine, seconds }) => seconds !== undefined && engine !== placed.engine.name)
    .toSorted((one, other) => (one.seconds ?? 0) - (other.seconds ?? 0))
    .slice(0, FALLBACKS);
  const picked: Picked = {
    placed,
    destination: addresses.known(placed.engine),
    fallbacks: others.map(({ engine }) => addresses.known(engines.find(({ name }) => name === engine))).filter((one) => one !== ""),
    prefill: placed.prefill === undefined ? undefined : addresses.known(placed.prefill.engine),
  };
  return { picked, tokens: sought.tokens };
}

/** Engines as ADDRESS:PORT, which is what gateways route to; names are looked up now and then. */
class Addresses {
  readonly #known = new Map<string, { address: string; untilMs: number }>();

  async of(engine: Engine): Promise<void> {
    const { hostname, port } = new URL(engine.url);
    const host = hostname.replace(/^\[|\]$/g, "");
    const known = this.#known.get(engine.url);
    if (known !== undefined && performance.now() < known.untilMs) return;
    const address =
      isIP(host) === 0
        ? await lookup(host).then(
            (found) => found.address,
            () => "",
          )
        : host;
    if (address !== "")
      this.#known.set(engine.url, { address: `${address.includes(":") ? `[${address}]` : address}:${port || "80"}`, untilMs: performance.now() + ADDRESS_MS });
  }

  known(engine: Engine | undefined): string {
    return this.#known.get(engine?.url ?? "")?.address ?? "";
  }
}
