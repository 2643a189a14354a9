// The tools, resources and prompts of one session of the Model Context Protocol, over any transport and in each revision of the protocol.
import { McpServer } from "@modelcontextprotocol/server";
import { addFileTools } from "./file-tools.ts";
import { addLifeTools } from "./life-tools.ts";
import { addPrompts } from "./prompts.ts";
import { addResources } from "./resources.ts";
import { addRunTools } from "./run-tools.ts";
import type { SessionSandboxes } from "./sandboxes.ts";

const OF_SESSION =
  "The tools work on this session's own sandbox, which is started when it is first needed and ends with the session; pass `sandbox` for another one.";
const WITHOUT_SESSION = "Start a sandbox with sandbox_create, and pass its id as `sandbox` with each call; it ends some time after the last call for it.";

export function openServer(sandboxes: SessionSandboxes): McpServer {
  const which = sandboxes.isStateless ? WITHOUT_SESSION : OF_SESSION;
  const instructions = `Isolated Linux computers. ${which} Files and background processes stay between calls. Fork a sandbox to try several ways from one state.`;
  const server = new McpServer({ name: "svc", title: "svc sandboxes", version: "0.1.0" }, { instructions });
  addRunTools(server, sandboxes);
  addFileTools(server, sandboxes);
  addLifeTools(server, sandboxes);
  addResources(server, sandboxes);
  addPrompts(server, sandboxes);
  return server;
}
