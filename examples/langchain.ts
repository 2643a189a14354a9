// LangChain: an agent that works in its own sandbox. Run: svc run examples/langchain.ts "what is the 100th prime?"
// Needs `npm install langchain @langchain/core @langchain/openai @langchain/mcp-adapters` and OPENAI_API_KEY; without the key it shows
// the tools and uses one.
import { fileURLToPath } from "node:url";
import { MultiServerMCPClient } from "@langchain/mcp-adapters";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent } from "langchain";

const svc = process.env["SVC"] ?? fileURLToPath(new URL("../svc", import.meta.url));
const mcp = new MultiServerMCPClient({ svc: { transport: "stdio", command: svc, args: ["mcp"], env: { ...process.env } as Record<string, string> } });

try {
  const tools = await mcp.getTools();
  if (process.env["OPENAI_API_KEY"]) {
    const agent = createAgent({ model: new ChatOpenAI({ model: process.env["MODEL"] ?? "gpt-5.2" }), tools });
    const { messages } = await agent.invoke({ messages: [{ role: "user", content: process.argv[2] ?? "Find the 100th prime by a program." }] });
    console.log(messages.at(-1)?.content);
  } else {
    console.log(`tools: ${tools.map(({ name }) => name).sort().join(" ")}`);
    console.log(await tools.find(({ name }) => name === "run_code")?.invoke({ code: "print(6 * 7)" }));
  }
} finally {
  await mcp.close();
}
