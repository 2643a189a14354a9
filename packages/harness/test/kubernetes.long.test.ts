// The manifests of deploy/kubernetes on a real Kubernetes API server: each is accepted and returned unchanged.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { type Manifest, manifests } from "../src/deploy-files.ts";
import { builtApiserver, type KubeApiserver, startApiserver } from "../src/kube-apiserver.ts";
import { applied, createNamespace } from "../src/kube-apply.ts";
import { needs } from "../src/needs.ts";

const NAMESPACE = "svc-test";
/** A server has these kinds only once their definitions are installed. */
const custom = /^(inference|gateway)\.networking\.k8s\.io\//;
const given = existsSync(process.env["SVC_GO"] ?? "") ? needs("etcd", "python3-yaml") : { skip: "missing on this host: a Go compiler" };

void describe("a Kubernetes API server", given, () => {
  let server: KubeApiserver;
  before(async () => {
    server = await startApiserver(await builtApiserver());
    await createNamespace(server, NAMESPACE);
  });
  after(() => server?.[Symbol.asyncDispose]());

  const apply = (manifest: Manifest) => applied(server, NAMESPACE, manifest);

  const all = given.skip === false ? manifests().filter(({ kind, apiVersion }) => kind !== "Kustomization" && !custom.test(apiVersion)) : [];
  for (const manifest of all)
    void test(`accepts ${manifest.kind} ${manifest.metadata.name} of ${manifest.file}, and returns it`, () => apply(manifest).then(() => undefined));

  void test("refuses a manifest with an unknown field, which shows that it reads the others completely", async () => {
    const node = all.find(({ kind }) => kind === "DaemonSet") as Manifest;
    await assert.rejects(apply({ ...node, spec: { ...node.spec, replicaz: 3 } as unknown as Manifest["spec"] }), /replicaz/);
  });
});
