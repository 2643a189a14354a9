// Vercel AI SDK: a model that works in its own sandbox. Run: svc run examples/vercel-ai-sdk.ts "what is the 100th prime?"
// Needs `npm install ai@7 @ai-sdk/mcp@2 @ai-sdk/openai@4` and OPENAI_API_KEY; without the key it shows the tools and uses one.
import { fileURLToPath } from "node:url";
import { createMCPClient } from "@ai-sdk/mcp";
import { StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";
import { openai } from "@ai-sdk/openai";
import { generateText, isStepCount } from "ai";

const svc = process.env["SVC"] ?? fileURLToPath(new URL("../svc", import.meta.url));
const mcp = await createMCPClient({ transport: new StdioMCPTransport({ command: svc, args: ["mcp"], env: { ...process.env } as Record<string, string> }) });

try {
  const tools = await mcp.tools();
  if (process.env["OPENAI_API_KEY"]) {
    const { text } = await generateText({
      model: openai(process.env["MODEL"] ?? "gpt-5.2"),
      tools,
      stopWhen: isStepCount(20),
      prompt: process.argv[2] ?? "Write a Python program that finds the 100th prime, run it, and tell me the number.",
    });
    console.log(text);
  } else {
    console.log(`tools: ${Object.keys(tools).sort().join(" ")}`);
    const result = await tools["run_code"]?.execute?.({ code: "print(6 * 7)" }, { toolCallId: "1", messages: [], context: {} });
    console.log(JSON.stringify(result));
  }
} finally {
  await mcp.close();
}
