// An engine whose streams send one event and then nothing; with "endless" in the prompt, as much as the router takes.
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

const EVENT = `data: {"choices":[{"index":0,"delta":{"content":"${"y".repeat(1_000)}"}}]}\n\n`;
const open = new Set<ServerResponse>();
let endlessBytes = 0;

const server = createServer(async (asked, response) => {
  const chunks: Buffer[] = [];
  for await (const chunk of asked) chunks.push(chunk as Buffer);
  if (asked.url === "/seen") return response.end(JSON.stringify({ open: open.size, endlessBytes }));
  if (asked.url === "/v1/models") return response.end('{"object":"list","data":[{"id":"demo","object":"model"}]}');
  if (asked.method !== "POST" || asked.url !== "/v1/chat/completions") return response.end("{}");
  const text = Buffer.concat(chunks).toString();
  if (!text.includes('"stream":true')) return response.end('{"choices":[]}');
  open.add(response);
  response.once("close", () => open.delete(response));
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.write(EVENT);
  if (!text.includes("endless")) return;
  const pour = () => {
    while (!response.destroyed) {
      endlessBytes += EVENT.length;
      if (!response.write(EVENT)) return void response.once("drain", pour);
    }
  };
  pour();
});
server.listen(0, "127.0.0.1", 4_096, () => process.stdout.write(`ready at http://127.0.0.1:${(server.address() as AddressInfo).port}\n`));
