// Sends spans of requests by OTLP (HTTP, JSON) to the collector that the environment names. The libraries are loaded only if it names one.
import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "./log.ts";
import type { Trace } from "./trace.ts";

/** Limits how long an unresponsive collector can delay the shutdown. */
const CLOSE_MS = 2_000;
/** A broken collector fails every batch, so its errors are logged at most this often. */
const COMPLAINT_MS = 60_000;

export type RequestSpan = {
  /** The trace context to pass on: the client's trace, or a new one, with this span as the parent. */
  readonly trace: Trace;
  /** `status` is that of the answer, or 499 if the client left before it. */
  end(status: number): void;
};

export type RequestOf = {
  readonly method: string;
  /** The route as declared, with the names of its parameters. */
  readonly route: string;
  readonly client: string;
  readonly requestID: string;
};

export type Spans = {
  begin(request: RequestOf, trace: Trace): RequestSpan;
  /** Sends the remaining spans, within a time limit. */
  close(): Promise<void>;
};

export type SpansOptions = {
  /** `gateway` or `node`. The service is named `svc-gateway` or `svc-node` unless OTEL_SERVICE_NAME says otherwise. */
  readonly server: string;
  readonly version: string;
  readonly log: Log;
  readonly env?: NodeJS.ProcessEnv;
};

/**
 * Returns undefined if neither OTEL_EXPORTER_OTLP_ENDPOINT nor OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. OpenTelemetry's own variables set
 * headers, time limit and further attributes. At most 2,048 spans wait; more are dropped.
 */
export async function openSpans({ server, version, log, env = process.env }: SpansOptions): Promise<Spans | undefined> {
  const endpoint = env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] || env["OTEL_EXPORTER_OTLP_ENDPOINT"];
  if (!endpoint || env["OTEL_SDK_DISABLED"] === "true") return undefined;
  const [api, core, resources, sdk, otlp] = await Promise.all([
    import("@opentelemetry/api"),
    import("@opentelemetry/core"),
    import("@opentelemetry/resources"),
    import("@opentelemetry/sdk-trace"),
    import("@opentelemetry/exporter-trace-otlp-http"),
  ]);
  const complain = complaints(log);
  api.diag.setLogger({ error: complain, warn: complain, info() {}, debug() {}, verbose() {} }, api.DiagLogLevel.WARN);
  const own = resources.resourceFromAttributes({ "service.name": `svc-${server}`, "service.version": version, "process.pid": process.pid });
  const provider = new sdk.TracerProvider({
    resource: own.merge(resources.detectResources({ detectors: [resources.envDetector] })),
    sampler: new sdk.ParentBasedSampler({ root: new sdk.AlwaysOnSampler() }),
    spanProcessors: [new sdk.BatchSpanProcessor({ exporter: new otlp.OTLPTraceExporter() })],
  });
  const tracer = provider.getTracer("svc", version);
  const propagator = new core.W3CTraceContextPropagator();
  log.info({ endpoint: withoutCredentials(endpoint) }, "spans of requests are sent by OTLP as HTTP and JSON");
  return {
    begin({ method, route, client, requestID }, trace) {
      const attributes = { "http.request.method": method, "http.route": route, "client.address": client, "svc.request_id": requestID };
      const parent = propagator.extract(api.ROOT_CONTEXT, trace, api.defaultTextMapGetter);
      const span = tracer.startSpan(`${method} ${route}`, { kind: api.SpanKind.SERVER, attributes }, parent);
      const sentOn: Record<string, string> = {};
      propagator.inject(api.trace.setSpan(parent, span), sentOn, api.defaultTextMapSetter);
      return {
        trace: sentOn,
        end(status) {
          span.setAttribute("http.response.status_code", status);
          if (status >= 500) span.setAttribute("error.type", String(status)).setStatus({ code: api.SpanStatusCode.ERROR });
          span.end();
        },
      };
    },
    async close() {
      await Promise.race([provider.shutdown(), sleep(CLOSE_MS, undefined, { ref: false })]).catch(complain);
      api.diag.disable();
    },
  };
}

function complaints(log: Log): (reason: unknown) => void {
  let saidAtMs = Number.NEGATIVE_INFINITY;
  return (reason) => {
    if (performance.now() - saidAtMs < COMPLAINT_MS) return;
    saidAtMs = performance.now();
    log.warn({ reason: String(reason).slice(0, 500) }, "spans could not be sent to the collector");
  };
}

function withoutCredentials(endpoint: string): string {
  return endpoint.replace(/\/\/[^/@]*@/, "//");
}
