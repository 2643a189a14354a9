// OpenAI Agents SDK: an agent that works in its own sandbox. Run: svc run examples/openai-agents.ts "what is the 100th prime?"
// Needs `npm install @openai/agents` and OPENAI_API_KEY; without the key it shows the tools and uses one.
import { fileURLToPath } from "node:url";
import { Agent, MCPServerStdio, run } from "@openai/agents";

const svc = process.env["SVC"] ?? fileURLToPath(new URL("../svc", import.meta.url));
const sandbox = new MCPServerStdio({ name: "svc", command: svc, args: ["mcp"], env: { ...process.env } as Record<string, string>, clientSessionTimeoutSeconds: 120 });
await sandbox.connect();

try {
  if (process.env["OPENAI_API_KEY"]) {
    const agent = new Agent({
      name: "Programmer",
      instructions: "Solve the task by writing and running programs in your sandbox. Check your results before you answer.",
      mcpServers: [sandbox],
    });
    const { finalOutput } = await run(agent, process.argv[2] ?? "Find the 100th prime.", { maxTurns: 20 });
    console.log(finalOutput);
  } else {
    const tools = await sandbox.listTools();
    console.log(`tools: ${tools.map(({ name }) => name).sort().join(" ")}`);
    console.log(JSON.stringify(await sandbox.callTool("run_code", { code: "print(6 * 7)" })));
  }
} finally {
  await sandbox.close();
}
