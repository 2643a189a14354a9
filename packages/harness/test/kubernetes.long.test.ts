// The manifests of deploy/kubernetes on a real Kubernetes API server: each is accepted and returned unchanged.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type Manifest, manifests } from "../src/deploy-files.ts";
import { builtApiserver, type KubeApiserver, startApiserver } from "../src/kube-apiserver.ts";
import { needs } from "../src/needs.ts";

const NAMESPACE = "svc-test";
/** A server has these kinds only once their definitions are installed. */
const custom = /^(inference|gateway)\.networking\.k8s\.io\//;
const FIELDS = "fieldManager=svc&fieldValidation=Strict";
const given = existsSync(process.env["SVC_GO"] ?? "") ? needs("etcd", "python3-yaml") : { skip: "missing on this host: a Go compiler" };

type Kind = { readonly path: string; readonly isNamespaced: boolean };

void describe("a Kubernetes API server", given, () => {
  let server: KubeApiserver;
  before(async () => {
    server = await startApiserver(await builtApiserver());
    const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name: NAMESPACE } };
    const { status, body } = await server.ask("PATCH", `/api/v1/namespaces/${NAMESPACE}?${FIELDS}`, namespace);
    assert.equal(status, 201, JSON.stringify(body));
  });
  after(() => server?.[Symbol.asyncDispose]());

  async function kindOf({ apiVersion, kind, file }: Manifest): Promise<Kind> {
    const base = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const { body } = await server.ask("GET", base);
    const resources = (body["resources"] ?? []) as { name: string; kind: string; namespaced: boolean }[];
    const found = resources.find((each) => each.kind === kind && !each.name.includes("/"));
    assert.ok(found !== undefined, `${file}: the server has no ${kind} in ${apiVersion}`);
    return { path: `${base}|${found.name}`, isNamespaced: found.namespaced };
  }

  async function apply(manifest: Manifest): Promise<Record<string, unknown>> {
    const { file, ...rest } = manifest;
    const { path, isNamespaced } = await kindOf(manifest);
    const [base = "", plural = ""] = path.split("|");
    const at = `${base}/${isNamespaced ? `namespaces/${NAMESPACE}/` : ""}${plural}/${manifest.metadata.name}`;
    const sent = isNamespaced ? { ...rest, metadata: { ...rest.metadata, namespace: NAMESPACE } } : rest;
    const { status, body } = await server.ask("PATCH", `${at}?${FIELDS}`, sent);
    assert.ok(status === 201 || status === 200, `${file}: ${status} ${JSON.stringify(body)}`);
    const kept = await server.ask("GET", at);
    assert.equal(kept.status, 200, file);
    contains(kept.body, sent, `${file} ${manifest.kind}`);
    return kept.body;
  }

  const all = given.skip === false ? manifests().filter(({ kind, apiVersion }) => kind !== "Kustomization" && !custom.test(apiVersion)) : [];
  for (const manifest of all)
    void test(`accepts ${manifest.kind} ${manifest.metadata.name} of ${manifest.file}, and returns it`, () => apply(manifest).then(() => undefined));

  void test("refuses a manifest with an unknown field, which shows that it reads the others completely", async () => {
    const node = all.find(({ kind }) => kind === "DaemonSet") as Manifest;
    await assert.rejects(apply({ ...node, spec: { ...node.spec, replicaz: 3 } as unknown as Manifest["spec"] }), /replicaz/);
  });
});

/** Checks that everything sent is present; the server adds defaults and generated names. */
function contains(kept: unknown, sent: unknown, where: string): void {
  if (Array.isArray(sent)) {
    assert.ok(Array.isArray(kept) && kept.length === sent.length, `${where}: ${JSON.stringify(kept)}`);
    for (const [index, each] of sent.entries()) contains(kept[index], each, `${where}[${index}]`);
  } else if (typeof sent === "object" && sent !== null) {
    assert.ok(typeof kept === "object" && kept !== null, `${where} is missing`);
    for (const [name, value] of Object.entries(sent)) contains((kept as Record<string, unknown>)[name], value, `${where}.${name}`);
  } else assert.equal(kept, sent, where);
}
