// The page that a browser gets at the node's URL.
import { readFileSync } from "node:fs";
import type { PageOptions } from "@svc/kit/home-page.ts";

export function nodePages(): PageOptions {
  const { version } = JSON.parse(readFileSync(new URL("../../../package.json", import.meta.url), "utf8")) as { version: string };
  return {
    title: "svc node",
    version,
    about:
      "Isolated computers for agents, compatible with the E2B API: create one, run commands, move files, serve ports, pause it with its memory, resume it, fork it. Unmodified E2B clients use this URL as E2B_API_URL and E2B_SANDBOX_URL.",
    next: [
      ["./svc start base -d", "starts a sandbox and prints its id"],
      ["./svc exec ID -- python3 -c 'print(6*7)'", "runs a command in it"],
      ["./svc list", "lists the sandboxes"],
      ["./svc doctor", "says what this host can do"],
      ["./svc mcp", "gives them to an agent by the Model Context Protocol"],
    ],
    guides: ["docs/quickstart.md", "docs/sandboxes.md", "docs/templates.md", "docs/networking.md", "docs/operations.md", "docs/agents.md", "docs/rollouts.md"],
  };
}
