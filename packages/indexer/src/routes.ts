// The indexer's routes: registrations, queries, and its own state.
import { REGISTERED, UNREGISTERED, unregistration } from "@svc/contract/indexer.ts";
import { PAGE_TYPE } from "@svc/kit/home-page.ts";
import type { Metrics } from "@svc/kit/metrics.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { readBody } from "./http/bodies.ts";
import type { Answer, Handler, Routes } from "./http/exchange.ts";
import { Refusal, refusalOf } from "./http/refusal.ts";
import { respond } from "./http/respond.ts";
import type { LoopShare } from "./index/loop-share.ts";
import type { NativeIndex } from "./index/native.ts";
import { indexerPage } from "./observe/page.ts";
import type { Views } from "./observe/views.ts";
import { queryRoutes } from "./query/query-routes.ts";
import type { Scores } from "./query/score.ts";
import { checkReplays, keyOf, nameOf } from "./registrations/register-input.ts";
import type { Registry } from "./state/registry.ts";
import type { Shared } from "./state/shared.ts";

export type RoutesOptions = {
  readonly index: NativeIndex;
  readonly registry: Registry;
  /** The replicas that share registrations; undefined: this indexer is alone. */
  readonly shared: Shared | undefined;
  readonly views: Views;
  readonly scores: Scores;
  readonly metrics: Metrics;
  readonly share: LoopShare;
  /** Required by routes that change registrations or read everything; "" disables the check. */
  readonly apiKey: string;
  /** Updates the metrics before they are read. */
  readonly collect: () => void;
  readonly snapshot: () => Promise<Answer>;
  readonly startedAtMs: number;
};

export function indexerRoutes(options: RoutesOptions): Routes {
  const { index, registry, shared, views, scores, metrics, share, apiKey, collect, snapshot, startedAtMs } = options;
  const guarded =
    (handler: Handler): Handler =>
    (request) => {
      if (apiKey !== "" && !sameSecret(request.credential, apiKey))
        throw new Refusal("unauthorized", `${request.path} needs the indexer's API key, as X-API-Key or as Authorization: Bearer (indexer.api_key)`);
      return handler(request);
    };

  const register: Handler = async (request) => {
    const registration = checkReplays(registry.read(readBody(request)));
    const isNew = !registry.subscriptions.has(keyOf(registration));
    const subscription = await registry.register(registration);
    try {
      await shared?.put(registration);
    } catch (error) {
      if (isNew) await registry.unregister(registration);
      throw error;
    }
    return respond(request, { status: REGISTERED, instance_id: subscription.registration.instance_id });
  };

  const unregister: Handler = async (request) => {
    const body = readBody(request);
    const parsed = unregistration.safeParse(body);
    if (!parsed.success) throw refusalOf(parsed.error, body);
    const { instance_id, tenant_id, dp_rank } = parsed.data;
    const identity = { instance_id, tenant_id: tenant_id || "default", dp_rank };
    const count = await (shared === undefined ? registry.unregister(identity) : shared.remove(identity));
    return respond(request, { status: UNREGISTERED, removed_instances: Array<string>(count).fill(nameOf(identity)) });
  };

  const routes: Routes = {
    "/register": { POST: guarded(register) },
    "/unregister": { POST: guarded(unregister) },
    ...queryRoutes(index, registry, views, share),
    "/score": { POST: (request) => respond(request, scores.answer(request)) },
    "/services": { GET: async (request) => respond(request, await views.services()) },
    "/global_view": { GET: (request) => respond(request, views.globalView(new URLSearchParams(request.search))) },
    "/snapshot": { GET: guarded(() => snapshot()) },
    "/health": {
      GET: (request) =>
        respond(request, { status: "ok", registrations: registry.subscriptions.size, uptime_seconds: Math.round((Date.now() - startedAtMs) / 1000) }),
    },
    "/metrics": {
      GET: async () => {
        collect();
        return { body: await metrics.text(), type: metrics.contentType };
      },
    },
  };
  const page = indexerPage(routes);
  return { "/": { GET: () => ({ body: page, type: PAGE_TYPE }) }, ...routes };
}
