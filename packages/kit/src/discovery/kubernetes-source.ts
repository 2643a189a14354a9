// Engines from Kubernetes: pods by label, listed and then watched through the API server, as the pod's own service account may.
import { existsSync, readFileSync } from "node:fs";
import { type ClientRequest, type IncomingMessage, request as plainRequest } from "node:http";
import { request as tlsRequest } from "node:https";
import type { NamedEntry } from "./engine-entry.ts";
import { Pods } from "./pods.ts";
import { Repeat } from "./repeat.ts";
import { type OpenSource, onlyOptions, portOf } from "./source.ts";

const ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount";
const HTTP_PORT = 8_000;
const PAGE = 500;
/** The server ends a watch after this time; the next watch continues from the same version. */
const WATCH_SECONDS = 300;
/** A connection on which the server sends nothing for this long, not even a bookmark, is dead. */
const SILENCE_MS = (WATCH_SECONDS + 30) * 1_000;
const CALL_MS = 15_000;
const RETRY_MS = 2_000;
const MAX_LINE_BYTES = 8 * 1024 * 1024;

type Api = { readonly base: string; readonly account: string };
type List = { metadata?: { resourceVersion?: string; continue?: string }; items?: unknown[] };

/** The history that a watch needs has been compacted. */
class Expired extends Error {}

export function openKubernetesSource(namespace: string, options: URLSearchParams, bad: (why: string) => never): OpenSource {
  if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(namespace)) bad("expected kubernetes:NAMESPACE?selector=LABEL=VALUE");
  onlyOptions(options, ["selector", "port", "events_port", "replay_port", "api", "account"], bad);
  const selector = options.get("selector") ?? bad("selector is missing: expected kubernetes:NAMESPACE?selector=LABEL=VALUE");
  const ports = {
    port: portOf(options, "port", HTTP_PORT, bad) as number,
    events: portOf(options, "events_port", undefined, bad),
    replay: portOf(options, "replay_port", undefined, bad),
  };
  const host = process.env["KUBERNETES_SERVICE_HOST"] ?? "";
  const own = host === "" ? "" : `https://${host.includes(":") ? `[${host}]` : host}:${process.env["KUBERNETES_SERVICE_PORT"] ?? "443"}`;
  const api: Api = { base: (options.get("api") ?? own).replace(/\/$/, ""), account: options.get("account") ?? ACCOUNT };
  if (!/^https?:\/\/[^/]+$/.test(api.base)) bad("this is not a pod of Kubernetes, and api=https://HOST:PORT is missing");
  const path = (query: Record<string, string>) => `/api/v1/namespaces/${namespace}/pods?${new URLSearchParams({ labelSelector: selector, ...query })}`;

  return ({ onEntries, onTrouble, log }) => {
    const pods = new Pods(ports, log);
    let version: string | undefined;
    let reported = "";
    const report = () => {
      const entries: NamedEntry[] = pods.entries();
      const text = JSON.stringify(entries);
      if (text === reported) return;
      reported = text;
      onEntries(entries);
    };
    return new Repeat(async (signal) => {
      try {
        if (version === undefined) {
          version = await list(api, path, pods, signal);
          report();
        }
        version = await watch(
          api,
          path({ watch: "1", allowWatchBookmarks: "true", timeoutSeconds: String(WATCH_SECONDS), resourceVersion: version }),
          signal,
          (event, at) => {
            version = at ?? version;
            if (pods.take(event)) report();
          },
        ).then(() => version);
        return 0;
      } catch (error) {
        if (signal.aborted) return 0;
        if (error instanceof Expired) {
          version = undefined;
          return 0;
        }
        // The next list must be reported even if it is unchanged, since only that ends the reported trouble.
        reported = "";
        version = undefined;
        onTrouble(`Kubernetes: ${(error as Error).message}`);
        return RETRY_MS;
      }
    });
  };
}

async function list(api: Api, path: (query: Record<string, string>) => string, pods: Pods, signal: AbortSignal): Promise<string> {
  const items: unknown[] = [];
  let next = "";
  for (;;) {
    const text = await textOf(await ask(api, path({ limit: String(PAGE), ...(next === "" ? {} : { continue: next }) }), CALL_MS, signal));
    const page = JSON.parse(text) as List;
    items.push(...(page.items ?? []));
    next = page.metadata?.continue ?? "";
    if (next !== "") continue;
    pods.replace(items);
    const version = page.metadata?.resourceVersion ?? "";
    if (version === "") throw new Error("the list of pods has no resourceVersion");
    return version;
  }
}

/** Resolves when the server ends the watch. @throws Expired, or Error where the server fails. */
async function watch(api: Api, path: string, signal: AbortSignal, onEvent: (event: unknown, version: string | undefined) => void): Promise<void> {
  const answer = await ask(api, path, SILENCE_MS, signal);
  let left = "";
  for await (const chunk of answer.setEncoding("utf8") as AsyncIterable<string>) {
    const lines = (left + chunk).split("\n");
    left = lines.pop() ?? "";
    if (left.length > MAX_LINE_BYTES) throw new Error(`an event of the watch has more than ${MAX_LINE_BYTES} bytes`);
    for (const line of lines) {
      if (line.trim() === "") continue;
      const event = JSON.parse(line) as { type?: string; object?: { code?: number; message?: string; metadata?: { resourceVersion?: string } } };
      if (event.type === "ERROR") throw event.object?.code === 410 ? new Expired() : new Error(event.object?.message ?? line.slice(0, 300));
      onEvent(event, event.object?.metadata?.resourceVersion);
    }
  }
}

function ask({ base, account }: Api, path: string, silenceMs: number, signal: AbortSignal): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const read = (name: string) => (existsSync(`${account}/${name}`) ? readFileSync(`${account}/${name}`, "utf8").trim() : "");
    // The token is replaced while the pod runs, so each call reads it.
    const token = read("token");
    const ca = base.startsWith("https:") ? read("ca.crt") : "";
    const headers = { accept: "application/json", ...(token === "" ? {} : { authorization: `Bearer ${token}` }) };
    const options = { headers, signal, timeout: silenceMs, ...(ca === "" ? {} : { ca }) };
    const call: ClientRequest = (base.startsWith("https:") ? tlsRequest : plainRequest)(base + path, options, (answer) => {
      if (answer.statusCode === 200) return resolve(answer);
      answer.resume();
      reject(
        answer.statusCode === 410
          ? new Expired()
          : new Error(`${path.split("?")[0]} answered ${answer.statusCode}: may the service account list and watch pods?`),
      );
    });
    call.once("timeout", () => call.destroy(new Error(`nothing came for ${silenceMs / 1000} s`)));
    call.on("error", reject);
    call.end();
  });
}

async function textOf(answer: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of answer.setEncoding("utf8") as AsyncIterable<string>) text += chunk;
  return text;
}
