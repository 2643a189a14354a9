// A server with the console and made-up sandboxes, for the bench: the list, the events at a given rate, and nothing else.

import type { ServerResponse } from "node:http";
import { fail } from "@svc/contract/failures.ts";
import type { lifecycleEvents } from "@svc/contract/observe.ts";
import { getSandbox, type ListedSandbox, listSandboxes } from "@svc/contract/sandbox.ts";
import { openConsole } from "@svc/kit/console/open-console.ts";
import { commonSeries } from "@svc/kit/console/ring.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { serve } from "@svc/kit/serve.ts";

export type Order = { readonly perSecond: number };
const SANDBOXES = Number(process.env["BENCH_SANDBOXES"] ?? 10_000);
const PAGE = 100;
const TICK_MS = 50;
const [apiKey = ""] = process.argv.slice(2);

const rows = new Map<string, ListedSandbox>();
let made = 0;
function make(): ListedSandbox {
  const at = Date.now();
  const row: ListedSandbox = {
    sandboxID: `i${(made++).toString(36).padStart(19, "0")}`,
    templateID: "3e67915e911d5fff4794",
    clientID: "svc",
    alias: "base",
    startedAt: new Date(at).toISOString(),
    endAt: new Date(at + 3_600_000).toISOString(),
    cpuCount: 2,
    memoryMB: 1024,
    diskSizeMB: 4096,
    state: "running",
    envdVersion: "0.5.0",
    metadata: { run: `rollout-${made % 200}`, step: String(made % 17) },
    forkDepth: 0,
  };
  rows.set(row.sandboxID, row);
  return row;
}
for (let index = 0; index < SANDBOXES; index++) make();

const log = openLog("bench", "silent");
const metrics = openMetrics();
const readers = new Set<ServerResponse>();
const row = async (id: string) => rows.get(id) ?? fail("SANDBOX_NOT_FOUND", `no sandbox ${id}`);
const operations = { listSandboxes, getSandbox };
const webConsole = openConsole({
  kind: "node",
  title: "svc node",
  version: "bench",
  settings: { mode: "on", hosts: [], session_hours: 12, indexer_url: "", store_url: "", store_admin_url: "", metadata_url: "" },
  apiKey,
  domains: [],
  operations,
  row,
  series: commonSeries,
  home: "/tmp",
  log,
  metrics,
});
const app = serve({
  operations,
  handlers: {
    listSandboxes({ nextToken }, context) {
      const at = Number(nextToken ?? 0);
      const page = [...rows.values()].slice(at, at + PAGE);
      if (at + PAGE < rows.size) context.header("x-next-token", String(at + PAGE));
      return page;
    },
    getSandbox: async ({ sandboxID }) => ({ ...(await row(sandboxID)), lifecycle: { autoResume: false, onTimeout: "kill" as const } }),
  },
  apiKey,
  log,
  metrics,
  raw(scope) {
    scope.get("/events", (_request, reply) => {
      reply.hijack();
      reply.raw.writeHead(200, { "content-type": "text/event-stream" });
      reply.raw.write(`id: ${lastID}\n\n`);
      readers.add(reply.raw);
      reply.raw.on("close", () => readers.delete(reply.raw));
    });
    webConsole.routes(scope);
  },
});

let lastID = 1;
let perSecond = 0;
let owed = 0;
/** A third of the events create, a third end, and the rest set a timeout, so that the number of sandboxes stays. */
function event(): string {
  lastID++;
  const kind = lastID % 3;
  const [oldest] = rows.keys();
  const subject = kind === 0 ? make() : (rows.get(kind === 1 ? (oldest ?? "") : ([...rows.keys()][lastID % 100] ?? "")) ?? make());
  const type: (typeof lifecycleEvents)[number] = kind === 0 ? "sandbox.created" : kind === 1 ? "sandbox.ended" : "sandbox.timeout_set";
  if (kind === 1) rows.delete(subject.sandboxID);
  if (kind === 2) rows.set(subject.sandboxID, { ...subject, endAt: new Date(Date.now() + 3_600_000).toISOString() });
  const details = kind === 1 ? { reason: lastID % 9 === 1 ? "oom" : "killed" } : { timeoutSeconds: 3600 };
  const data = { id: lastID, type, at: new Date().toISOString(), sandboxID: subject.sandboxID, templateID: subject.templateID, details };
  return `id: ${lastID}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
}
setInterval(() => {
  owed += (perSecond * TICK_MS) / 1000;
  let text = "";
  for (; owed >= 1; owed--) text += event();
  if (text !== "") for (const reader of readers) reader.write(text);
}, TICK_MS);

process.on("message", (order: Order) => {
  perSecond = order.perSecond;
  process.send?.({ events: lastID });
});
process.on("disconnect", () => process.exit(0));
await app.listen({ host: "127.0.0.1", port: 0 });
const address = app.server.address();
const url = `http://127.0.0.1:${typeof address === "object" ? (address?.port ?? 0) : 0}`;
webConsole.start(app, url, Number(new URL(url).port));
process.send?.({ url });
