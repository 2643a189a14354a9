// The MCP tool run_code in a sandbox of code-interpreter-v1: variables stay, and images come as images.
import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { type CallToolResult, Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import type { TestNode } from "../src/node.ts";

const svc = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
type Ran = { exitCode: number; stdout: string; timedOut: boolean; stateful: boolean; results: { text?: string }[]; error?: { name: string } };

/** `png` is shown by the code and must arrive unchanged. */
export async function drivesRunCode(node: Pick<TestNode, "url" | "apiKey">, png: string): Promise<void> {
  const client = new Client({ name: "test", version: "1" });
  const env = { ...process.env, SVC_URL: node.url, SDK_API_KEY: node.apiKey } as Record<string, string>;
  await client.connect(new StdioClientTransport({ command: process.execPath, args: ["--disable-warning=ExperimentalWarning", svc, "mcp"], env }));
  try {
    const run = async (code: string, more: Record<string, unknown> = {}) => {
      const result = (await client.callTool({ name: "run_code", arguments: { code, ...more } })) as CallToolResult;
      return { result, data: result.structuredContent as Ran };
    };
    await run("x = 20");
    const { data } = await run("print('said'); x + 1");
    assert.deepEqual([data.stateful, data.exitCode, data.stdout, data.results], [true, 0, "said\n", [{ text: "21" }]]);
    const image = await run(`from IPython.display import Image, display\ndisplay(Image(__import__("base64").b64decode("${png}")))`);
    assert.deepEqual(
      image.result.content.filter(({ type }) => type === "image"),
      [{ type: "image", mimeType: "image/png", data: png }],
    );
    const failed = await run("1 / 0");
    assert.deepEqual([failed.result.isError, failed.data.exitCode, failed.data.error?.name], [true, 1, "ZeroDivisionError"]);
    assert.match(JSON.stringify(failed.result.content), /ZeroDivisionError: division by zero/);
    const slow = await run("while True: pass", { timeout_seconds: 3 });
    assert.deepEqual([slow.data.timedOut, slow.data.exitCode], [true, 124]);
    assert.match(JSON.stringify(slow.result.content), /interrupted after 3 s.*the variables are still there/);
    assert.equal((await run("x")).data.results[0]?.text, "20");
    assert.equal((await run("echo $((6 * 7))", { language: "bash" })).data.stdout, "42\n");
  } finally {
    await client.close();
  }
}
