// The chart of deploy/helm, rendered by Helm's engine: its defaults are the manifests of deploy/kubernetes, and an API server accepts what it renders.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { programs } from "@svc/cli/servers/programs.ts";
import { type Container, containerStages, entryOf, type Manifest, manifests, serverLine, TREE } from "../src/deploy-files.ts";
import { builtProgram } from "../src/go-program.ts";
import { renderChart } from "../src/helm.ts";
import { builtApiserver, startApiserver } from "../src/kube-apiserver.ts";
import { applied, createNamespace } from "../src/kube-apply.ts";
import { needs } from "../src/needs.ts";

const given = existsSync(process.env["SVC_GO"] ?? "") ? needs("etcd", "python3-yaml") : { skip: "missing on this host: a Go compiler" };
/** The release is in this namespace so that the router's discovery names the same one as the manifest. */
const NAMESPACE = "svc-cache";
/** Values that change as much as possible. */
const other = {
  image: { registry: "registry.example.org/svc", tag: "9.9.9", pullSecrets: ["pull"] },
  etcd: { url: "http://e1:2379,http://e2:2379" },
  objects: { url: "" },
  secrets: { auth: "my-auth", runtime: "my-runtime" },
  settings: { SVC_GATEWAY_QUEUE: "500" },
  gateway: { autoscaling: { enabled: true, minReplicas: 3 }, service: { type: "LoadBalancer" }, podDisruptionBudget: { minAvailable: 2 } },
  node: {
    autoscaling: { enabled: true, maxReplicas: 9 },
    tolerations: [{ key: "sandboxes", operator: "Exists" }],
    patch: { spec: { template: { spec: { dnsPolicy: "Default" } } } },
  },
  storeMaster: { replicas: 3, resources: { requests: { cpu: "2" } } },
  indexer: { storage: "50Gi", storageClassName: "fast", extraArgs: ["--indexer.silence_seconds", "60"] },
  router: { engines: { selector: "role=engine", port: 9000 } },
  networkPolicies: { monitoringFrom: [{ namespaceSelector: { matchLabels: { name: "monitoring" } } }] },
  serviceMonitors: { enabled: true, labels: { release: "prometheus" } },
};

type Anything = Record<string, unknown>;
const named = (all: readonly Manifest[], kind: string, name: string) => {
  const found = all.find((each) => each.kind === kind && each.metadata.name === name);
  assert.ok(found !== undefined, `there is ${kind} ${name}`);
  return found;
};
const containerOf = (manifest: Manifest) => manifest.spec.template?.spec.containers[0] as Container;

/** Leaves out what a chart adds to every object, and the tags of images. */
function bare(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(bare);
  if (typeof value !== "object" || value === null) return typeof value === "string" ? value.replace(/^(svc-[a-z-]+):0\.1\.0$/, "$1") : value;
  const added = /^(file|namespace|annotations|imagePullPolicy|app\.kubernetes\.io\/.*|helm\.sh\/chart)$/;
  const kept = Object.entries(value as Anything).filter(([name]) => !added.test(name));
  return Object.fromEntries(kept.map(([name, each]) => [name, bare(each)]).filter(([, each]) => JSON.stringify(each) !== "{}" || each === undefined));
}

void describe("the Helm chart", given, () => {
  let program: string;
  before(async () => {
    program = await builtProgram("helm");
  });

  void test("renders by its defaults each manifest of deploy/kubernetes, unchanged", async () => {
    const rendered = await renderChart(program, NAMESPACE);
    // One namespace has one policy for the cache and one for gateways; the pool needs definitions that few clusters have.
    const own = (manifest: Manifest) => /^(Kustomization|Namespace|InferencePool|HTTPRoute)$/.test(manifest.kind) || manifest.file === "cache/network.yaml";
    const plain = manifests().filter((manifest) => !own(manifest));
    assert.ok(plain.length >= 18, String(plain.length));
    for (const manifest of plain) {
      const found = structuredClone(named(rendered, manifest.kind, manifest.metadata.name)) as unknown as Anything & { spec?: Anything };
      if (manifest.kind === "Service") delete found.spec?.["type"];
      assert.deepEqual(bare(found), bare(manifest), `${manifest.kind} ${manifest.metadata.name}`);
    }
  });

  void test("renders command lines that every server accepts, also with several masters", async () => {
    const stages = containerStages();
    for (const values of [{}, other]) {
      const all = await renderChart(program, NAMESPACE, values);
      const servers = all.filter(({ metadata }) => metadata.name !== "svc-node-place");
      const containers = servers.flatMap(({ spec }) => spec?.template?.spec.containers ?? []);
      assert.equal(containers.length, 8);
      for (const { name, image, args = [] } of containers) {
        const line = serverLine(name, [...entryOf(stages, image.replace(/^.*\//, "").replace(/:.*$/, "")), ...args]);
        const file = programs.find((each) => each.name === line.verb)?.settings;
        assert.ok(file !== undefined, line.verb);
        const { load } = (await import(join(TREE, file))) as { load: (argv: readonly string[]) => unknown };
        assert.doesNotThrow(() => load(line.flags.map((word) => word.replace("$(POD_IP)", "10.0.0.1").replace("$(POD_NAME)", "svc-store-master-0"))), name);
      }
    }
  });

  void test("values change images, secrets, storage, scaling and settings, and without object storage nothing asks for its credentials", async () => {
    const all = await renderChart(program, NAMESPACE, other);
    const text = JSON.stringify(all);
    assert.doesNotMatch(text, /AWS_|svc-auth|svc-runtime-secrets|SVC_OBJECTS_URL/);
    for (const { spec } of all)
      for (const { image } of spec?.template?.spec.containers ?? []) assert.match(image, /^registry\.example\.org\/svc\/svc-[a-z-]+:9\.9\.9$/);
    const gateway = named(all, "Deployment", "svc-gateway") as unknown as { spec: Anything };
    assert.equal(gateway.spec["replicas"], undefined, "an autoscaled Deployment names no number");
    const scaler = named(all, "HorizontalPodAutoscaler", "svc-gateway") as unknown as { spec: Anything };
    assert.deepEqual([scaler.spec["minReplicas"], scaler.spec["maxReplicas"]], [3, 20]);
    // Nodes are a DaemonSet, which nothing scales: these pods make the machines follow the number that gateways want.
    const places = named(all, "HorizontalPodAutoscaler", "svc-node-place") as unknown as { spec: Anything };
    assert.deepEqual([places.spec["minReplicas"], places.spec["maxReplicas"]], [2, 9]);
    assert.match(JSON.stringify(places.spec["metrics"]), /"svc_gateway_nodes_wanted".*"averageValue":"1"/);
    assert.match(JSON.stringify(named(all, "Deployment", "svc-node-place")), /"nodeSelector":{"svc\/sandboxes":"true"}.*"tolerations":\[{"key":"sandboxes"/s);
    const master = named(all, "StatefulSet", "svc-store-master") as unknown as { spec: Anything };
    assert.equal(master.spec["replicas"], 3);
    named(all, "PodDisruptionBudget", "svc-store-master");
    // Each master has a name only below a headless service, which is the one that its StatefulSet names.
    const service = named(all, "Service", "svc-store-master") as unknown as { spec: Anything };
    assert.deepEqual([service.spec["clusterIP"], master.spec["serviceName"]], ["None", "svc-store-master"]);
    const masters = [0, 1, 2].map((number) => `svc-store-master-${number}.svc-store-master:50051`).join(",");
    assert.ok(containerOf(named(all, "StatefulSet", "svc-store-admin")).args?.includes(masters));
    assert.ok(containerOf(named(all, "DaemonSet", "svc-store-service")).args?.includes("etcd://e1:2379;e2:2379"));
    assert.match(JSON.stringify(named(all, "StatefulSet", "svc-indexer")), /"storage":"50Gi".*|"storageClassName":"fast"/);
    assert.equal(named(all, "ConfigMap", "svc-settings").data?.["SVC_GATEWAY_QUEUE"], "500");
    assert.match(JSON.stringify(named(all, "DaemonSet", "svc-node")), /"dnsPolicy":"Default"/);
    assert.ok(containerOf(named(all, "Deployment", "svc-router")).args?.includes(`kubernetes:${NAMESPACE}?selector=role=engine&port=9000`));
  });

  void test("a monitor scrapes a port that its pods or services have, and a network policy lets the scraper in", async () => {
    const all = await renderChart(program, NAMESPACE, other);
    type Monitor = { spec: { selector: { matchLabels: { app: string } }; endpoints?: { port: string }[]; podMetricsEndpoints?: { port: string }[] } };
    const monitors = all.filter(({ kind }) => kind === "ServiceMonitor" || kind === "PodMonitor");
    assert.equal(monitors.length, 8);
    for (const monitor of monitors) {
      const { selector, endpoints, podMetricsEndpoints } = (monitor as unknown as Monitor).spec;
      const app = selector.matchLabels.app;
      const ports =
        monitor.kind === "ServiceMonitor"
          ? (named(all, "Service", app).spec.ports ?? [])
          : (all.find(({ spec }) => spec?.template?.metadata.labels["app"] === app)?.spec.template?.spec.containers[0]?.ports ?? []);
      for (const { port } of endpoints ?? podMetricsEndpoints ?? [])
        assert.ok(
          ports.some(({ name }) => name === port),
          `${app} has no port ${port}`,
        );
    }
    for (const name of ["svc-node", "svc-cache", "svc-gateway"]) assert.match(JSON.stringify(named(all, "NetworkPolicy", name)), /"name":"monitoring"/, name);
  });

  void test("values that no server would understand are refused before anything is rendered", async () => {
    const wrong: readonly (readonly [object, RegExp])[] = [
      [{ gatway: { replicas: 3 } }, /gatway/],
      [{ indexer: { replicas: 3 } }, /indexer/],
      [{ etcd: { url: "etcd:2379" } }, /etcd/],
      [{ image: { pullPolicy: "Sometimes" } }, /pullPolicy/],
      [{ settings: { gateway_queue: "1" } }, /settings/],
      [{ storeMaster: { storage: "much" } }, /storage/],
    ];
    for (const [values, says] of wrong) await assert.rejects(renderChart(program, NAMESPACE, values), says, JSON.stringify(values));
  });

  void test("an API server accepts everything that it renders, with its defaults and with other values", async () => {
    await using server = await startApiserver(await builtApiserver());
    for (const [namespace, values] of [
      [NAMESPACE, {}],
      ["other", other],
    ] as const) {
      await createNamespace(server, namespace);
      const all = await renderChart(program, namespace, values);
      const known = all.filter(({ apiVersion }) => !apiVersion.startsWith("monitoring.coreos.com/"));
      assert.ok(known.length >= 20);
      for (const manifest of known) await applied(server, namespace, manifest);
    }
  });
});
