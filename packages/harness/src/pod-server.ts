// The part of a Kubernetes API server that lists and watches pods, with resource versions, bookmarks and a history that can be compacted.
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

type Pod = {
  metadata: { name: string; labels: Record<string, string>; annotations?: Record<string, string>; resourceVersion: string; deletionTimestamp?: string };
  status: object;
};
type Change = { type: "ADDED" | "MODIFIED" | "DELETED"; object: Pod; version: number };
export type PodInput = {
  readonly ip?: string;
  readonly phase?: string;
  readonly labels?: Record<string, string>;
  readonly annotations?: Record<string, string>;
  readonly isEnding?: boolean;
};
export type PodServer = {
  readonly url: string;
  /** Requests that were answered, as METHOD PATH?QUERY. */
  readonly asked: string[];
  put(name: string, pod: PodInput): void;
  delete(name: string): void;
  /** Forgets the history, so that a watch from an earlier version gets 410. */
  compact(): void;
  /** Ends all watches without a word. */
  cut(): void;
  /** Answers everything with this status until it is undefined. */
  refuse: number | undefined;
} & AsyncDisposable;

export async function startPodServer(namespace = "default", token = ""): Promise<PodServer> {
  const pods = new Map<string, Pod>();
  const asked: string[] = [];
  let history: Change[] = [];
  let version = 1;
  let compactedAt = 0;
  const watches = new Set<{ selector: string; response: ServerResponse }>();

  const matches = ({ metadata }: Pod, selector: string) =>
    selector.split(",").every((one) => {
      const [key = "", value = ""] = one.split("=");
      return metadata.labels[key] === value;
    });
  const line = (type: string, object: object) => `${JSON.stringify({ type, object })}\n`;
  function change(type: Change["type"], object: Pod): void {
    history.push({ type, object, version });
    for (const { selector, response } of watches) if (matches(object, selector)) response.write(line(type, object));
  }

  function handle(request: IncomingMessage, response: ServerResponse) {
    const { pathname, searchParams } = new URL(request.url ?? "/", "http://x");
    asked.push(`${request.method} ${request.url}`);
    const answer = (status: number, body: object) => void response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    if (server.refuse !== undefined) return answer(server.refuse, { kind: "Status", code: server.refuse });
    if (token !== "" && request.headers.authorization !== `Bearer ${token}`) return answer(401, { kind: "Status", code: 401 });
    if (pathname !== `/api/v1/namespaces/${namespace}/pods`) return answer(404, { kind: "Status", code: 404 });
    const selector = searchParams.get("labelSelector") ?? "";
    if (searchParams.get("watch") === "1") {
      const from = Number(searchParams.get("resourceVersion"));
      response.writeHead(200, { "content-type": "application/json" });
      if (from < compactedAt) return void response.end(line("ERROR", { kind: "Status", code: 410, message: "too old resource version" }));
      for (const { type, object, version: at } of history) if (at > from && matches(object, selector)) response.write(line(type, object));
      response.write(line("BOOKMARK", { metadata: { resourceVersion: String(version) } }));
      const watch = { selector, response };
      watches.add(watch);
      response.once("close", () => watches.delete(watch));
      return;
    }
    const all = [...pods.values()].filter((pod) => matches(pod, selector));
    const from = Number(searchParams.get("continue") ?? 0);
    const until = from + Number(searchParams.get("limit") ?? all.length);
    answer(200, { metadata: { resourceVersion: String(version), ...(until < all.length ? { continue: String(until) } : {}) }, items: all.slice(from, until) });
  }

  const http = createServer(handle);
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  const server: PodServer = {
    url: `http://127.0.0.1:${(http.address() as AddressInfo).port}`,
    asked,
    refuse: undefined,
    put(name, { ip, phase = "Running", labels = { app: "engine" }, annotations, isEnding = false }) {
      version++;
      const known = pods.has(name);
      const pod: Pod = {
        metadata: {
          name,
          labels,
          resourceVersion: String(version),
          ...(annotations === undefined ? {} : { annotations }),
          ...(isEnding ? { deletionTimestamp: "2026-01-01T00:00:00Z" } : {}),
        },
        status: { phase, ...(ip === undefined ? {} : { podIP: ip }) },
      };
      pods.set(name, pod);
      change(known ? "MODIFIED" : "ADDED", pod);
    },
    delete(name) {
      const pod = pods.get(name);
      if (pod === undefined) return;
      version++;
      pods.delete(name);
      change("DELETED", { ...pod, metadata: { ...pod.metadata, resourceVersion: String(version) } });
    },
    compact() {
      history = [];
      compactedAt = version;
    },
    cut() {
      for (const { response } of watches) response.destroy();
    },
    async [Symbol.asyncDispose]() {
      http.closeAllConnections();
      http.close();
    },
  };
  return server;
}
