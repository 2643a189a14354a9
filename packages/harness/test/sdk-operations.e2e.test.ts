// Every operation that the installed E2B SDKs know, asked of a node and of a gateway: served, or refused in words that no client takes for an absent object.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { describe, test } from "node:test";
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";

type Called = { readonly method: string; readonly path: string };

/** Operations of E2B's API for its dashboard and its operators, which no SDK calls. */
const hosted =
  "GET /teams, GET /teams/{teamID}/metrics, GET /teams/{teamID}/metrics/max, GET /api-keys, POST /api-keys, PATCH /api-keys/{id}, DELETE /api-keys/{id}, " +
  "POST /access-tokens, DELETE /access-tokens/{id}, POST /admin/teams/{teamID}/sandboxes/kill, GET /events/sandboxes, GET /events/sandboxes/{id}, " +
  "GET /events/webhooks, POST /events/webhooks, GET /events/webhooks/{id}, PATCH /events/webhooks/{id}, DELETE /events/webhooks/{id}, " +
  "POST /templates, POST /v2/templates, POST /templates/{id}, POST /templates/{id}/builds/{buildID}";

/** From the types of the JavaScript SDK, which repeat the paths of E2B's API. */
function ofJavaScript(): Called[] {
  const folder = dirname(createRequire(import.meta.url).resolve("e2b"));
  const text = readFileSync(join(folder, "index.d.ts"), "utf8");
  const found: Called[] = [];
  let path = "";
  for (const line of text.slice(text.indexOf("interface paths {"), text.indexOf("\n}\n", text.indexOf("interface paths {"))).split("\n")) {
    path = /^ {2}"?(\/[^":]*)"?: \{/.exec(line)?.[1] ?? path;
    const method = /^ {4}(get|put|post|delete|patch): (?!never)/.exec(line)?.[1];
    if (method !== undefined) found.push({ method: method.toUpperCase(), path });
  }
  return found;
}

/** From the generated client of the Python SDK, which is newer. */
function ofPython(): Called[] {
  const folder = join(process.env["SVC_PYTHON_CLIENTS"] ?? "", "e2b/api/client/api");
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".py"));
  return files.flatMap((file) => {
    const text = readFileSync(join(folder, file), "utf8");
    const [, method] = /"method": "(\w+)"/.exec(text) ?? [];
    const [, path] = /"url": f?"([^"]+)"/.exec(text) ?? [];
    return method === undefined || path === undefined ? [] : [{ method: method.toUpperCase(), path }];
  });
}

void describe("the operations of E2B's API", needs("root", "runc", "envd", "base", "python-clients"), async () => {
  const all = [...ofJavaScript(), ...ofPython(), ...hosted.split(", ").map((each) => ({ method: each.split(" ")[0] ?? "", path: each.split(" ")[1] ?? "" }))];
  const known = new Map(all.map((each) => [`${each.method} ${each.path.replace(/\{\w+\}/g, "nobody")}`, each]));

  void test("each is served or refused as not offered, at a node and at a gateway, never as an unknown route", async () => {
    assert.ok(ofJavaScript().length > 40 && ofPython().length > 40 && known.size >= 64, `${ofJavaScript().length}, ${ofPython().length}, ${known.size}`);
    await using deployment = await startFrontedNodes({ nodes: 1 });
    const { gateway } = deployment;
    const refused = new Set<string>();
    for (const { url, apiKey } of [...deployment.nodes, gateway]) {
      for (const asked of known.keys()) {
        const [method = "", path = ""] = asked.split(" ");
        const headers = { "x-api-key": apiKey, "content-type": "application/json" };
        const answer = await fetch(url + path, { method, headers, ...(method === "GET" ? {} : { body: "{}" }) });
        const text = await answer.text();
        const { error_code, message } = (text === "" || text.startsWith("[") ? {} : JSON.parse(text)) as { error_code?: string; message?: string };
        assert.notEqual(error_code, "ROUTE_NOT_FOUND", asked);
        if (error_code !== "NOT_OFFERED") continue;
        refused.add(asked);
        assert.equal(answer.status, 501);
        assert.match(message ?? "", /svc does not offer [a-zE].*; .*GET \/docs lists every operation/);
      }
      const without = await fetch(`${url}/volumes`);
      assert.equal(without.status, 401, "what is not offered needs the key, too");
      await without.body?.cancel();
      const unknown = await fetch(`${url}/no/such`, { headers: { "x-api-key": apiKey } });
      assert.equal(unknown.status, 404);
      assert.match(await unknown.text(), /GET \/no\/such: this server has no such operation; GET \/docs lists those it has/);
    }
    for (const family of ["/teams", "/access-tokens"])
      assert.ok(
        [...refused].some((each) => each.includes(family)),
        `nothing of ${family} is refused`,
      );
  });
});
