// Tries to reach what belongs to another tenant by every operation: the same at a node and at a gateway.
// Longer than 300 lines: every test needs the same two tenants, their keys and what they own.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Answer } from "@svc/contract/call.ts";
import { roleFor } from "@svc/contract/key-access.ts";
import { createKey, listKeys, type Role } from "@svc/contract/keys.ts";
import type { Input, Operation, Output } from "@svc/contract/operation.ts";
import { createSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import type { Secret } from "@svc/contract/secrets.ts";
import { listVolumes, type Volume } from "@svc/contract/volumes.ts";
import { Sandbox } from "e2b";

export type Server = {
  readonly url: string;
  readonly apiKey: string;
  call<T extends Operation>(operation: T, input: Input<T>): Promise<Output<T>>;
  callForAnswer<T extends Operation>(operation: T, input: Input<T>): Promise<Answer<T>>;
};

/** Whatever acme owns carries this text, so that it is recognized in any answer. */
const MARK = "only-acme-may-read-this";

/** Members that an operation needs besides the ids of its path; an operation without a row gets `{}`, and must accept it. */
const bodies: Readonly<Record<string, object>> = {
  createSandbox: { templateID: "base" },
  createSandboxV1: { templateID: "base" },
  connectSandbox: { timeout: 60 },
  connectSandboxV1: { timeout: 60 },
  resumeSandbox: { timeout: 60 },
  setSandboxTimeout: { timeout: 1 },
  refreshSandbox: { duration: 1 },
  setSandboxNetwork: { denyOut: ["0.0.0.0/0"] },
  createSnapshot: { memory: false },
  createVolume: { name: "of-globex", sizeMB: 16 },
  createSecret: { name: "of-globex", value: "x" },
  updateSecret: { value: "x" },
  createKey: { name: "more" },
  updateKey: { role: "viewer" },
  setTenantQuotas: { quotas: {} },
};

/** Queries without which an operation answers nothing. */
const queries: Readonly<Record<string, string>> = { getSandboxesMetrics: "?sandbox_ids={sandboxID}" };

/** Routes outside the tables of operations. */
const raw = [
  "GET /events",
  "GET /events?types=sandbox.created",
  "GET /snapshots/{sandboxID}/export",
  "POST /snapshots/import",
  "GET /cluster/stream?version=1",
  "GET /cluster/find?sandboxID={sandboxID}",
  "GET /cluster/offers?asked={sandboxID}",
  "GET /cluster/captures/{sandboxID}/0",
  "POST /cluster/read",
  "POST /cluster/end",
  "POST /cluster/take",
  "POST /console/api/links",
  "GET /console/api/audit",
];

export const keyFor = async (server: Server, tenant: string, role: Role = "admin") =>
  server.call(createKey, { name: `${tenant}-${role}-${tenant === "acme" ? MARK : ""}`, tenant, role });

export const ask = (server: Server, key: string, method: string, path: string, body?: object) =>
  fetch(server.url + path, {
    method,
    headers: { "x-api-key": key, ...(body === undefined ? {} : { "content-type": "application/json" }) },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    signal: AbortSignal.timeout(60_000),
  });

export function tenantsSuite(server: () => Server, served: Readonly<Record<string, Operation>>): void {
  async function acmes() {
    const owner = await keyFor(server(), "acme");
    const made = await ask(server(), owner.apiKey, "POST", "/v2/sandboxes", { templateID: "base", metadata: { mark: MARK } });
    assert.equal(made.status, 201, await made.clone().text());
    const { sandboxID } = (await made.json()) as { sandboxID: string };
    const taken = await ask(server(), owner.apiKey, "POST", `/sandboxes/${sandboxID}/snapshots`, { memory: false });
    assert.equal(taken.status, 201, await taken.clone().text());
    const { snapshotID } = (await taken.json()) as { snapshotID: string };
    const filled = (path: string) =>
      path
        .replace("{sandboxID}", sandboxID)
        .replace("{snapshotID}", snapshotID)
        .replace("{apiKeyID}", owner.id)
        .replace("{tenant}", "globex")
        .replace(/\{\w+\}/g, "base");
    return { owner, sandboxID, snapshotID, filled };
  }

  async function volumeOf(key: string, name: string): Promise<Volume & { token: string }> {
    const made = await ask(server(), key, "POST", "/volumes", { name, sizeMB: 16 });
    assert.equal(made.status, 201, await made.clone().text());
    return (await made.json()) as Volume & { token: string };
  }

  async function secretOf(key: string, name: string, value: string): Promise<Secret> {
    const made = await ask(server(), key, "POST", "/secrets", { name, value });
    assert.equal(made.status, 201, await made.clone().text());
    return (await made.json()) as Secret;
  }

  void test("no operation shows or changes anything of another tenant, whatever role the key has", async () => {
    const { sandboxID, snapshotID, filled, owner } = await acmes();
    const globex = await keyFor(server(), "globex");
    const kept = await volumeOf(owner.key, `walked-${MARK}`);
    const secret = await secretOf(owner.key, `walked-${MARK}`, "its value");
    for (const { name, method, path, credential } of Object.values(served)) {
      if (credential === "none") continue;
      const answer = await ask(
        server(),
        globex.key,
        method,
        filled(path.replace("{volumeID}", kept.volumeID).replace("{secretID}", secret.secretID) + (queries[name] ?? "")),
        method === "GET" ? undefined : (bodies[name] ?? {}),
      );
      const text = await answer.text();
      assert.equal(text.includes(MARK), false, `${name}: ${text}`);
      if (roleFor(name) === undefined) assert.equal(answer.status, 403, `${name} has no row in key-access.ts, so no named key may call it: ${text}`);
      else if (/\{(sandbox|apiKey|snapshot|template|volume|secret)ID\}/.test(path))
        assert.equal(answer.status, 404, `${name} (a new operation needs a valid body in this test): ${text}`);
      else assert.ok(answer.status < 300, `${name}: ${answer.status} ${text}`);
    }
    assert.equal((await server().call(getSandbox, { sandboxID })).metadata?.["mark"], MARK);
    // Snapshots are deleted like templates.
    const removed = await ask(server(), globex.key, "DELETE", `/templates/${snapshotID}`);
    assert.equal(removed.status, 404, await removed.text());
    assert.equal((await ask(server(), owner.key, "GET", `/snapshots/${snapshotID}`)).status, 200);
    assert.deepEqual(await (await ask(server(), owner.key, "GET", `/secrets/${secret.secretID}`)).json(), secret);
    assert.equal((await server().call(listVolumes, {})).find(({ volumeID }) => volumeID === kept.volumeID)?.tenant, "acme");
    assert.equal((await server().call(listKeys, {})).find(({ id }) => id === owner.id)?.role, "admin");
  });

  void test("routes outside the table of operations answer no named key", async () => {
    const { filled, owner } = await acmes();
    for (const route of raw) {
      const [method = "", path = ""] = route.split(" ");
      const answer = await ask(server(), owner.key, method, filled(path), method === "POST" ? {} : undefined);
      const text = answer.ok ? "" : await answer.text();
      await answer.body?.cancel().catch(() => {});
      assert.ok([401, 403, 404, 421].includes(answer.status), `${route}: ${answer.status} ${text}`);
    }
  });

  void test("a tenant lists its own sandboxes and keys, and the deployment's own key lists all", async () => {
    const { owner, sandboxID } = await acmes();
    const other = await keyFor(server(), "initech");
    const mine = await ask(server(), other.key, "POST", "/sandboxes", { templateID: "base" });
    const own = ((await mine.json()) as { sandboxID: string }).sandboxID;
    const ofDeployment = (await server().call(createSandbox, { templateID: "base" })).sandboxID;
    const listed = async (key: string, path: string) =>
      ((await (await ask(server(), key, "GET", path)).json()) as { sandboxID: string }[]).map((each) => each.sandboxID);
    for (const path of ["/sandboxes", "/v2/sandboxes"]) {
      assert.deepEqual(await listed(other.key, path), [own]);
      assert.equal((await listed(owner.key, path)).includes(sandboxID), true);
      assert.equal((await listed(owner.key, path)).includes(own), false);
      const all = await listed(server().apiKey, path);
      for (const id of [own, sandboxID, ofDeployment]) assert.equal(all.includes(id), true);
    }
    const keys = (await (await ask(server(), other.key, "GET", "/api-keys")).json()) as { tenant: string }[];
    assert.deepEqual([...new Set(keys.map(({ tenant }) => tenant))], ["initech"]);
    const teams = (await (await ask(server(), other.key, "GET", "/teams")).json()) as { teamID: string; isDefault: boolean }[];
    assert.deepEqual(
      teams.map(({ teamID, isDefault }) => [teamID, isDefault]),
      [["initech", true]],
    );
    const usage = (await (await ask(server(), other.key, "GET", `/sandboxes/metrics?sandbox_ids=${sandboxID},${own}`)).json()) as { sandboxes: object };
    assert.equal(Object.keys(usage.sandboxes).includes(sandboxID), false);
  });

  void test("a viewer reads and gets no tokens, a member changes sandboxes, and only an admin manages keys", async () => {
    const viewer = await keyFor(server(), "umbrella", "viewer");
    const member = await keyFor(server(), "umbrella", "member");
    const refused = await ask(server(), viewer.key, "POST", "/v2/sandboxes", { templateID: "base" });
    assert.equal(refused.status, 403);
    assert.match(await refused.text(), /ACCESS_DENIED/);
    const made = (await (await ask(server(), member.key, "POST", "/v2/sandboxes", { templateID: "base" })).json()) as {
      sandboxID: string;
      envdAccessToken: string;
    };
    assert.match(made.envdAccessToken, /^[0-9a-f]{64}$/);
    const seen = (await (await ask(server(), viewer.key, "GET", `/sandboxes/${made.sandboxID}`)).json()) as { sandboxID: string; envdAccessToken?: string };
    assert.equal(seen.sandboxID, made.sandboxID);
    assert.equal(seen.envdAccessToken, undefined);
    assert.equal((await ask(server(), viewer.key, "DELETE", `/sandboxes/${made.sandboxID}`)).status, 403);
    assert.equal((await ask(server(), member.key, "GET", "/api-keys")).status, 403);
    const outside = await ask(server(), (await keyFor(server(), "umbrella")).key, "POST", "/api-keys", { name: "x", tenant: "acme" });
    assert.equal(outside.status, 403);
    assert.equal((await ask(server(), member.key, "DELETE", `/sandboxes/${made.sandboxID}`)).status, 204);
  });

  void test("a tenant's forks and resumed sandboxes stay its own, also if the deployment's key forks them", async () => {
    const { owner, sandboxID } = await acmes();
    const globex = await keyFor(server(), "globex");
    const paused = await ask(server(), owner.key, "POST", `/sandboxes/${sandboxID}/pause`, {});
    // A driver without checkpoints of memory (runc) refuses both; gVisor does not.
    assert.ok(paused.status === 204 || paused.status === 400, `${paused.status} ${await paused.text()}`);
    if (paused.status === 204) {
      assert.equal((await ask(server(), globex.key, "POST", `/sandboxes/${sandboxID}/resume`, { timeout: 60 })).status, 404);
      assert.equal((await ask(server(), owner.key, "POST", `/sandboxes/${sandboxID}/resume`, { timeout: 60 })).status, 201);
      const forked = (await (await ask(server(), server().apiKey, "POST", `/sandboxes/${sandboxID}/fork`, {})).json()) as { sandbox?: { sandboxID: string } }[];
      for (const { sandbox } of forked) {
        assert.equal((await ask(server(), owner.key, "GET", `/sandboxes/${sandbox?.sandboxID}`)).status, 200);
        assert.equal((await ask(server(), globex.key, "GET", `/sandboxes/${sandbox?.sandboxID}`)).status, 404);
      }
    }
    // The logs of an ended sandbox can be read for a while, by its tenant.
    assert.equal((await ask(server(), owner.key, "DELETE", `/sandboxes/${sandboxID}`)).status, 204);
    assert.equal((await ask(server(), globex.key, "GET", `/v2/sandboxes/${sandboxID}/logs`)).status, 404);
    assert.equal((await ask(server(), owner.key, "GET", `/v2/sandboxes/${sandboxID}/logs`)).status, 200);
  });

  void test("a tenant starts from its own snapshots, lists and deletes them, and no other tenant finds them", async () => {
    const { owner, snapshotID } = await acmes();
    const globex = await keyFor(server(), "globex");
    const listed = async (key: string) =>
      ((await (await ask(server(), key, "GET", "/snapshots")).json()) as { snapshotID: string }[]).map((each) => each.snapshotID);
    assert.equal((await listed(owner.key)).includes(snapshotID), true);
    assert.equal((await listed(server().apiKey)).includes(snapshotID), true);
    assert.equal((await listed(globex.key)).includes(snapshotID), false);
    assert.equal((await ask(server(), globex.key, "POST", "/v2/sandboxes", { templateID: snapshotID })).status, 404);
    const copy = await ask(server(), owner.key, "POST", "/v2/sandboxes", { templateID: snapshotID });
    assert.equal(copy.status, 201, await copy.clone().text());
    const named = await ask(server(), owner.key, "POST", `/sandboxes/${((await copy.json()) as { sandboxID: string }).sandboxID}/snapshots`, { name: "mine" });
    assert.equal(named.status, 403);
    assert.equal((await ask(server(), owner.key, "DELETE", `/templates/base`)).status, 404);
    assert.equal((await ask(server(), owner.key, "DELETE", `/templates/${snapshotID}`)).status, 204);
    assert.equal((await listed(owner.key)).includes(snapshotID), false);
  });

  void test("a tenant lists the events of its own sandboxes, also after their end, and pages over those alone", async () => {
    const { owner, sandboxID } = await acmes();
    const hooli = await keyFor(server(), "hooli");
    const viewer = await keyFor(server(), "hooli", "viewer");
    const create = async () =>
      ((await (await ask(server(), hooli.key, "POST", "/sandboxes", { templateID: "base" })).json()) as { sandboxID: string }).sandboxID;
    const mine = [await create(), await create()];
    // A later event of another tenant would fill the first page if the page were cut before it is filtered.
    assert.equal((await ask(server(), owner.key, "POST", `/sandboxes/${sandboxID}/timeout`, { timeout: 600 })).status, 204);
    for (const id of mine) assert.equal((await ask(server(), hooli.key, "DELETE", `/sandboxes/${id}`)).status, 204);
    const ofDeployment = (await server().call(createSandbox, { templateID: "base" })).sandboxID;
    const listed = async (key: string, path: string) => {
      const answer = await ask(server(), key, "GET", path);
      assert.equal(answer.status, 200, await answer.clone().text());
      return (await answer.json()) as { id: string; sandboxId: string; type: string; tenant?: string }[];
    };
    const all = await listed(hooli.key, "/events/sandboxes?limit=100&orderAsc=true");
    assert.deepEqual([...new Set(all.map(({ sandboxId }) => sandboxId))].sort(), [...mine].sort());
    assert.deepEqual([...new Set(all.map(({ tenant }) => tenant))], ["hooli"]);
    assert.equal(all.filter(({ type }) => type === "sandbox.lifecycle.killed").length, 2);
    assert.deepEqual(await listed(viewer.key, "/events/sandboxes?limit=100&orderAsc=true"), all);
    const paged: unknown[] = [];
    for (const offset of all.keys()) paged.push(...(await listed(hooli.key, `/events/sandboxes?limit=1&offset=${offset}&orderAsc=true`)));
    assert.deepEqual(paged, all);
    assert.equal((await listed(hooli.key, `/events/sandboxes/${mine[0]}?types=sandbox.lifecycle.killed`)).length, 1);
    assert.equal((await ask(server(), owner.key, "GET", `/events/sandboxes/${mine[0]}`)).status, 404);
    assert.deepEqual(await listed(hooli.key, "/events/sandboxes/never-existed"), []);
    const seen = (await listed(server().apiKey, "/events/sandboxes?limit=100")).map(({ sandboxId, tenant }) => `${sandboxId} ${tenant ?? "deployment"}`);
    for (const one of [`${mine[0]} hooli`, `${sandboxID} acme`, `${ofDeployment} deployment`])
      assert.equal(seen.includes(one), true, `${one} in ${seen.join()}`);
  });

  void test("two tenants that use the same Idempotency-Key get a sandbox each", async () => {
    const ids = new Set<string>();
    for (const tenant of ["one", "two"]) {
      const { key } = await keyFor(server(), tenant);
      const create = async () => {
        const answer = await fetch(`${server().url}/v2/sandboxes`, {
          method: "POST",
          headers: { "x-api-key": key, "content-type": "application/json", "idempotency-key": "the-same-for-both" },
          body: JSON.stringify({ templateID: "base" }),
        });
        assert.equal(answer.status, 201, await answer.clone().text());
        return ((await answer.json()) as { sandboxID: string }).sandboxID;
      };
      const first = await create();
      assert.equal(await create(), first);
      ids.add(first);
    }
    assert.equal(ids.size, 2);
  });

  void test("three tenants have a volume of the same name each, and none of them finds another's", async () => {
    const acme = await keyFor(server(), "acme", "member");
    const globex = await keyFor(server(), "globex", "member");
    const own = await volumeOf(acme.key, "same");
    const others = [await volumeOf(globex.key, "same"), await volumeOf(server().apiKey, "same")];
    const again = await ask(server(), acme.key, "POST", "/volumes", { name: "same", sizeMB: 16 });
    assert.equal(again.status, 409, await again.text());
    const listed = async (key: string) => ((await (await ask(server(), key, "GET", "/volumes")).json()) as Volume[]).filter(({ name }) => name === "same");
    assert.deepEqual(
      (await listed(acme.key)).map(({ volumeID }) => volumeID),
      [own.volumeID],
    );
    assert.deepEqual(new Set((await listed(server().apiKey)).map(({ tenant }) => tenant)), new Set(["acme", "globex", undefined]));
    for (const { volumeID } of others)
      for (const method of ["GET", "DELETE"]) {
        const answer = await ask(server(), acme.key, method, `/volumes/${volumeID}`);
        assert.equal(answer.status, 404, await answer.text());
      }
    for (const [key, expected] of [
      [acme.key, own],
      [globex.key, others[0]],
      [server().apiKey, others[1]],
    ] as const)
      assert.equal(((await (await ask(server(), key, "GET", "/volumes/same")).json()) as Volume).volumeID, expected?.volumeID);

    const content = (token: string, init: RequestInit = {}) =>
      fetch(`${server().url}/volumecontent/${own.volumeID}/file?path=/note`, { ...init, headers: { authorization: `Bearer ${token}` } });
    assert.equal((await content(own.token, { method: "PUT", body: "of acme" })).status, 201);
    assert.equal((await content(others[0]?.token ?? "")).status, 401);
    assert.equal(await (await content(own.token)).text(), "of acme");
    const at = { apiUrl: server().url, sandboxUrl: server().url };
    const sandbox = await Sandbox.create("base", { ...at, apiKey: acme.key, volumeMounts: { "/data": "same" } });
    assert.equal((await sandbox.commands.run("cat /data/note")).stdout, "of acme");
    const foreign = await Sandbox.create("base", { ...at, apiKey: globex.key, volumeMounts: { "/data": "same" } });
    assert.equal((await foreign.commands.run("ls /data")).stdout.includes("note"), false);
    const used = await ask(server(), acme.key, "DELETE", `/volumes/${own.volumeID}`);
    assert.equal(used.status, 409, await used.text());
    const viewer = await keyFor(server(), "acme", "viewer");
    assert.equal((await ask(server(), viewer.key, "GET", "/volumes")).status, 200);
    for (const method of ["GET", "DELETE"]) assert.equal((await ask(server(), viewer.key, method, "/volumes/same")).status, 403);
    for (const each of [sandbox, foreign]) await each.kill();
    assert.equal((await ask(server(), acme.key, "DELETE", "/volumes/same")).status, 204);
    assert.equal((await listed(server().apiKey)).length, 2);
  });

  void test("three owners have a secret of the same name each, and none of them reads or replaces another's", async () => {
    const acme = await keyFor(server(), "acme", "member");
    const globex = await keyFor(server(), "globex", "member");
    const own = await secretOf(acme.key, "token", "a");
    const others = [await secretOf(globex.key, "token", "b"), await secretOf(server().apiKey, "token", "c")];
    assert.equal((await ask(server(), acme.key, "POST", "/secrets", { name: "Token", value: "x" })).status, 409);
    const listed = async (key: string) => ((await (await ask(server(), key, "GET", "/secrets")).json()) as Secret[]).filter(({ name }) => name === "token");
    assert.deepEqual(await listed(acme.key), [own]);
    assert.deepEqual(new Set((await listed(server().apiKey)).map(({ tenant }) => tenant)), new Set(["acme", "globex", undefined]));
    for (const asked of [...others.map(({ secretID }) => secretID), "globex%2Ftoken", "acme%2Ftoken"])
      for (const method of ["GET", "POST", "DELETE"]) {
        const answer = await ask(server(), acme.key, method, `/secrets/${asked}`, method === "POST" ? { value: "x" } : undefined);
        assert.equal(answer.status, 404, `${method} ${asked}: ${await answer.text()}`);
      }
    const viewer = await keyFor(server(), "acme", "viewer");
    assert.deepEqual(await listed(viewer.key), [own]);
    assert.equal((await ask(server(), viewer.key, "POST", "/secrets/token", { value: "x" })).status, 403);
    const replaced = (await (await ask(server(), acme.key, "POST", "/secrets/token", { value: "d" })).json()) as Secret;
    assert.deepEqual([replaced.secretID, replaced.currentVersion], [own.secretID, 2]);
    assert.deepEqual(await listed(globex.key), [others[0]]);
    assert.equal((await ask(server(), acme.key, "DELETE", "/secrets/token")).status, 204);
    assert.equal((await listed(server().apiKey)).length, 2);
  });

  void test("a tenant starts from public templates alone, and uses no identity token of the deployment", async () => {
    const { key } = await keyFor(server(), "acme");
    const holder = await server().call(createSandbox, { templateID: "base" });
    const taken = (await (
      await ask(server(), server().apiKey, "POST", `/sandboxes/${holder.sandboxID}/snapshots`, { name: "of-deployment", memory: false })
    ).json()) as { snapshotID: string };
    for (const templateID of [taken.snapshotID, "of-deployment"]) {
      const answer = await ask(server(), key, "POST", "/v2/sandboxes", { templateID });
      assert.equal(answer.status, 404, await answer.text());
    }
    const asBuild = await fetch(`${server().url}/v2/sandboxes`, {
      method: "POST",
      headers: { "x-api-key": key, "content-type": "application/json", "svc-build-id": taken.snapshotID },
      body: JSON.stringify({ templateID: "base" }),
    });
    assert.equal(asBuild.status, 404, await asBuild.text());
    for (const more of [
      { iam: { tokens: { mine: { audience: "https://example.com", tokenType: "JWT-SVID" } } } },
      { network: { rules: { "example.com": [{ transform: { headers: { Authorization: ["Bearer $", "{e2b.identity.tokens.mine}"].join("") } } }] } } },
    ]) {
      const answer = await ask(server(), key, "POST", "/v2/sandboxes", { templateID: "base", ...more });
      assert.equal(answer.status, 403, await answer.text());
    }
  });

  void test("a key that was revoked is refused with 401 and its reason", async () => {
    const { key, apiKey, id } = await keyFor(server(), "acme");
    assert.equal((await ask(server(), key, "GET", "/sandboxes")).status, 200);
    assert.equal((await ask(server(), server().apiKey, "DELETE", `/api-keys/${id}`)).status, 204);
    for (const spelling of [key, apiKey]) {
      const answer = await ask(server(), spelling, "GET", "/sandboxes");
      assert.equal(answer.status, 401);
      assert.equal(((await answer.json()) as { reason: string }).reason, "revoked");
    }
  });
}
