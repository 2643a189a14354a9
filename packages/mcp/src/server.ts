// One session of the Model Context Protocol and its tools, over any transport.
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { addFileTools } from "./file-tools.ts";
import { addLifeTools } from "./life-tools.ts";
import { addRunTools } from "./run-tools.ts";
import type { SessionSandboxes } from "./sandboxes.ts";

const INSTRUCTIONS = `Isolated Linux computers. The tools work on this session's own sandbox, which is started when it is first needed and ends with the session; pass \`sandbox\` for another one. Files and background processes stay between calls. Fork it to try several ways from one state.`;

export function openServer(sandboxes: SessionSandboxes): McpServer {
  const server = new McpServer({ name: "svc", title: "svc sandboxes", version: "0.1.0" }, { instructions: INSTRUCTIONS });
  addRunTools(server, sandboxes);
  addFileTools(server, sandboxes);
  addLifeTools(server, sandboxes);
  return server;
}
