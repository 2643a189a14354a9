// The operator's routes: which engines there are, and draining one before it is stopped.

import type { Log } from "@svc/kit/log.ts";
import { sameSecret } from "@svc/kit/secret.ts";
import { send } from "./client/answers.ts";
import type { ClientRequest } from "./client/request.ts";
import type { Engine } from "./engine.ts";
import { Refusal } from "./refusals.ts";

export type AdminOptions = { readonly engines: readonly Engine[]; readonly adminKey: string; readonly log: Log; readonly onChange: () => void };

/** @throws Refusal where the caller may not, or the path is not one of these. */
export function admin({ engines, adminKey, log, onChange }: AdminOptions, request: ClientRequest): void {
  const { path } = request;
  permit(request, adminKey);
  if (path === "/admin/engines") {
    if (request.method !== "GET") throw new Refusal("method_not_allowed", `${path} takes GET, got ${request.method}`);
    send(request, 200, JSON.stringify({ engines: engines.map(describe) }));
    return;
  }
  const [, name = "", verb = ""] = /^\/admin\/engines\/([^/]+)\/(drain|undrain)$/.exec(path) ?? [];
  if (verb === "") throw new Refusal("not_found", `there is no route ${path}; the routes are /admin/engines and /admin/engines/NAME/drain or undrain`);
  if (request.method !== "POST") throw new Refusal("method_not_allowed", `${path} takes POST, got ${request.method}`);
  const engine = engineNamed(engines, decoded(name));
  engine.draining = verb === "drain";
  log.info({ engine: engine.name, inFlight: engine.inFlight }, verb === "drain" ? "the engine drains" : "the engine takes requests again");
  onChange();
  send(request, 200, JSON.stringify(describe(engine)));
}

export function engineNamed(engines: readonly Engine[], name: string): Engine {
  const engine = engines.find((one) => one.name === name);
  if (engine === undefined)
    throw new Refusal("engine_not_found", `there is no engine ${JSON.stringify(name)}; the engines are ${engines.map((one) => one.name).join(", ")}`);
  return engine;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Without a key, only programs of this machine may drain engines. */
function permit({ headers, peer }: ClientRequest, adminKey: string): void {
  if (adminKey === "") {
    if (/^(::ffff:)?127\.|^::1$/.test(peer)) return;
    throw new Refusal("admin_refused", "admin routes are open to this machine alone as long as router.admin_key is not set");
  }
  const given = headers["x-api-key"] ?? /^Bearer (.+)$/i.exec(headers["authorization"] ?? "")?.[1] ?? "";
  if (!sameSecret(given, adminKey)) throw new Refusal("unauthorized", "admin routes need router.admin_key, as X-API-Key or as Authorization: Bearer");
}

export function describe(engine: Engine) {
  const { name, url, circuit, draining, indexState, inFlight, waiting, waitingTokens, load, models, unfit } = engine;
  return {
    name,
    url,
    fit: unfit === undefined,
    ...(unfit === undefined ? {} : { because: unfit }),
    circuit: circuit.state,
    draining,
    index_state: indexState,
    in_flight: inFlight,
    waiting,
    waiting_tokens: waitingTokens,
    load: load === undefined ? null : { running: load.running, waiting: load.waiting, kv_usage: load.kvUsage },
    models: models?.map(({ id }) => id) ?? null,
  };
}
