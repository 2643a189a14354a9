// W3C trace context of the request that is being worked on: taken over from the client, on every log line of it, and sent on.
import { AsyncLocalStorage } from "node:async_hooks";

/** traceparent and tracestate, as the client sent them; empty where it sent none. */
export type Trace = Readonly<Record<string, string>>;

const MAX_TRACESTATE = 512;
const form = /^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,64})?$/;
const current = new AsyncLocalStorage<Trace>();

export function traceOf(headers: Readonly<Record<string, unknown>>): Trace {
  const { traceparent, tracestate } = headers;
  if (typeof traceparent !== "string" || !form.test(traceparent)) return {};
  return { traceparent, ...(typeof tracestate === "string" && tracestate.length <= MAX_TRACESTATE ? { tracestate } : {}) };
}

/** Runs `work` as part of a trace; where there is none, as it is. */
export function traced<T>(trace: Trace, work: () => T): T {
  return trace["traceparent"] === undefined ? work() : current.run(trace, work);
}

/** For what is asked of others on behalf of this request. */
export const traceHeaders = (): Trace => current.getStore() ?? {};

/** For log lines. */
export function traceMembers(): { traceID?: string } {
  const traceID = form.exec(current.getStore()?.["traceparent"] ?? "")?.[1];
  return traceID === undefined ? {} : { traceID };
}
