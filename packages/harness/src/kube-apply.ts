// Applies manifests to a Kubernetes API server for tests: each must be accepted with strict validation, and returned as it was sent.
import assert from "node:assert/strict";
import type { Manifest } from "./deploy-files.ts";
import type { KubeApiserver } from "./kube-apiserver.ts";

const FIELDS = "fieldManager=svc&fieldValidation=Strict";

type Kind = { readonly path: string; readonly isNamespaced: boolean };

export async function createNamespace(server: KubeApiserver, name: string): Promise<void> {
  const namespace = { apiVersion: "v1", kind: "Namespace", metadata: { name } };
  const { status, body } = await server.ask("PATCH", `/api/v1/namespaces/${name}?${FIELDS}`, namespace);
  assert.equal(status, 201, JSON.stringify(body));
}

async function kindOf(server: KubeApiserver, { apiVersion, kind, file }: Manifest): Promise<Kind> {
  const base = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const { body } = await server.ask("GET", base);
  const resources = (body["resources"] ?? []) as { name: string; kind: string; namespaced: boolean }[];
  const found = resources.find((each) => each.kind === kind && !each.name.includes("/"));
  assert.ok(found !== undefined, `${file}: the server has no ${kind} in ${apiVersion}`);
  return { path: `${base}|${found.name}`, isNamespaced: found.namespaced };
}

/** Applies it in this namespace if its kind has one, and returns what the server then has. */
export async function applied(server: KubeApiserver, namespace: string, manifest: Manifest): Promise<Record<string, unknown>> {
  const { file, ...rest } = manifest;
  const { path, isNamespaced } = await kindOf(server, manifest);
  const [base = "", plural = ""] = path.split("|");
  const at = `${base}/${isNamespaced ? `namespaces/${namespace}/` : ""}${plural}/${manifest.metadata.name}`;
  const sent = isNamespaced ? { ...rest, metadata: { ...rest.metadata, namespace } } : rest;
  const { status, body } = await server.ask("PATCH", `${at}?${FIELDS}`, sent);
  assert.ok(status === 201 || status === 200, `${file}: ${status} ${JSON.stringify(body)}`);
  const kept = await server.ask("GET", at);
  assert.equal(kept.status, 200, file);
  contains(kept.body, sent, `${file} ${manifest.kind}`);
  return kept.body;
}

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
