// The page that the indexer shows to a browser at its URL.
import { readFileSync } from "node:fs";
import { homePage, ownLinks } from "@svc/kit/home-page.ts";
import type { Routes } from "../http/exchange.ts";

const does: Readonly<Record<string, string>> = {
  "POST /register": "Registers an engine's event stream",
  "POST /unregister": "Ends a registration, and forgets what it held",
  "POST /query": "Which instances hold a prompt's prefix, given its tokens",
  "POST /query_by_hash": "The same, given block hashes",
  "POST /query_batch": "Several queries at once",
  "POST /score": "Expected seconds of prefill on each candidate, and why",
  "POST /explain": "Why a query is answered as it is",
  "GET /services": "What is registered, and how fresh it is",
  "GET /global_view": "Everything the index holds, in pages",
  "GET /snapshot": "The whole index as a file, for a new replica",
  "GET /health": "200 while it serves",
  "GET /metrics": "Metrics for Prometheus",
};

const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string };
export const VERSION = version;

export function indexerPage(routes: Routes): string {
  const names = Object.entries(routes).flatMap(([path, methods]) => Object.keys(methods).map((method) => `${method} ${path}`));
  return homePage({
    title: "svc indexer",
    version: VERSION,
    about:
      "Reads the KV events of inference engines and answers routers which of them already holds a prompt's prefix: POST /register an engine, POST /query tokens or hashes.",
    access: "Calls need no key, but for registrations and the snapshot where indexer.api_key is set.",
    next: [
      ["./svc index register", "registers an engine"],
      ["./svc index query", "asks who holds a prompt"],
      ["./svc index services", "lists what is registered, and how fresh it is"],
    ],
    api: names.map((name) => [name, does[name] ?? ""] as const),
    links: [["/console", "Console"], ["/services", "Services"], ["/global_view", "The whole view"], ...ownLinks],
    guides: ["docs/indexer.md"],
  });
}
