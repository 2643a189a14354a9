// The files of deploy/ match the servers: commands, names and ports.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  type Container,
  composeServices,
  containerStages,
  entryOf,
  INSTALLED,
  kustomizations,
  listOf,
  type Manifest,
  manifests,
  type ServerLine,
  serverLine,
  systemdUnits,
  TREE,
  variablesOf,
} from "../src/deploy-files.ts";
import { needs } from "../src/needs.ts";

const yaml = needs("python3-yaml");
const all: readonly Manifest[] = yaml.skip === false ? manifests() : [];
const stages = containerStages();
const units = systemdUnits();
const pods = all.flatMap(({ file, spec, kind }) =>
  spec?.template === undefined ? [] : [{ file, kind, spec, pod: spec.template.spec, labels: spec.template.metadata.labels }],
);
const inTree = (path: string) => path.replace(INSTALLED, TREE);
const servers = ["gateway", "indexer", "metadata", "node", "router", "store admin", "store master", "store service"];

/** A server's flags, settings and default ports according to its --help. */
type Known = { readonly flags: ReadonlyMap<string, { readonly value: string; readonly setting: string }>; readonly defaults: ReadonlyMap<string, string> };
const asked = new Map<string, Known>();

function knownBy(verb: string): Known {
  const before = asked.get(verb);
  if (before !== undefined) return before;
  const main = join(TREE, "packages/cli/src/main.ts");
  const text = execFileSync(process.execPath, ["--disable-warning=ExperimentalWarning", main, ...verb.split(" "), "--help"], { encoding: "utf8" });
  assert.ok(text.startsWith(`Usage: svc ${verb} [options]`), `${verb} is a server`);
  const flags = new Map<string, { value: string; setting: string }>();
  for (const [, flag = "", value = "", setting] of text.matchAll(/^ {2}--(\S+) ?(\S*?)(?: \(default: .*\))?(?: +same as --(\S+))?$/gm))
    flags.set(flag, { value, setting: setting ?? flag });
  const defaults = new Map<string, string>();
  for (const [, flag = "", , value = ""] of text.matchAll(/^ {2}--(\w+\.\w+) (\S+)\n(?: {6}.*\n)*? {6}.*default:\s+"?([^")\s]*)"?\)$/gm))
    defaults.set(flag, value);
  // Settings that are explained together have their defaults on their own lines.
  for (const [, flag = "", value = ""] of text.matchAll(/^ {2}--(\w+\.\w+) \S+ \(default: "?([^")\s]*)"?\)$/gm)) defaults.set(flag, value);
  const known = { flags, defaults };
  asked.set(verb, known);
  return known;
}

/** The settings of a command line by their full names. @throws for a flag that the server lacks, or a value that it cannot parse. */
function settingsOf({ source, verb, flags }: ServerLine): Map<string, string> {
  const known = knownBy(verb).flags;
  const settings = new Map<string, string>();
  for (let index = 0; index < flags.length; index += 2) {
    const [flag = "", value = ""] = flags.slice(index, index + 2);
    const found = known.get(flag.replace(/^--/, ""));
    assert.ok(flag.startsWith("--") && found !== undefined, `${source}: svc ${verb} has the flag ${flag}`);
    assert.ok(value !== "" && !value.startsWith("--"), `${source}: ${flag} has a value`);
    if (found.value === "N") assert.match(value, /^\d+$/, `${source}: ${flag}`);
    settings.set(found.setting, value);
  }
  return settings;
}

const isPort = (setting: string) => /\.(listen|metrics_listen|picker|port|rpc_port)$/.test(setting);
const portOf = (value: string) => Number(value.slice(value.lastIndexOf(":") + 1));
const portsOf = (line: ServerLine) =>
  [...settingsOf(line)]
    .filter(([setting]) => isPort(setting))
    .map(([, value]) => portOf(value))
    .sort((a, b) => a - b);

const imageLines = () =>
  stages
    .filter((stage) => listOf(stage, "ENTRYPOINT").length > 0)
    .map((stage) => serverLine(`image ${stage.name}`, [...listOf(stage, "ENTRYPOINT"), ...listOf(stage, "CMD")]));
const unitLines = () => units.map((unit) => serverLine(unit.file, (unit.all("ExecStart")[0] ?? "").split(" ")));
const podLine = (file: string, { image, args = [] }: Container) => serverLine(file, [...entryOf(stages, image), ...args]);
const podLines = () => pods.flatMap(({ file, pod }) => pod.containers.map((container) => podLine(file, container)));

void test("every server has an image, a unit and a manifest", yaml, () => {
  for (const lines of [imageLines(), unitLines(), podLines()]) assert.deepEqual(lines.map(({ verb }) => verb).sort(), servers);
});

void test("every command line of an image, a unit and a manifest has flags that the server knows, and its default ports", yaml, () => {
  for (const line of [...imageLines(), ...unitLines(), ...podLines()]) {
    const { defaults } = knownBy(line.verb);
    for (const [setting, value] of settingsOf(line)) {
      // A port that is not open by default has none.
      if (isPort(setting) && defaults.get(setting) !== "") assert.equal(portOf(value), portOf(defaults.get(setting) ?? "?"), `${line.source}: ${setting}`);
    }
    assert.ok(portsOf(line).length > 0, `${line.source} names its port`);
  }
});

void test("the compose file runs three nodes and a gateway with flags that they know, and one etcd, one key and one seed for all", yaml, () => {
  const services = composeServices();
  assert.deepEqual([...services.keys()].sort(), ["etcd", "gateway", "node1", "node2", "node3"]);
  for (const [name, { image, command, environment = {}, volumes = [], depends_on = [] }] of services) {
    if (name === "etcd") continue;
    const line = serverLine(name, [...entryOf(stages, image.replace(/:.*$/, "")), ...command]);
    const settings = settingsOf(line);
    assert.equal(settings.get("cluster.etcd"), "http://etcd:2379", name);
    assert.deepEqual(depends_on, ["etcd"]);
    // The user who starts it supplies the secrets; no file contains one.
    for (const value of Object.values(environment)) assert.match(value, /^\$\{SVC_[A-Z_]+:\?\}$/);
    assert.ok("SVC_API_KEY" in environment);
    if (name === "gateway") continue;
    const objects = new URL(settings.get("objects.url") ?? "").pathname;
    for (const path of [objects, "/var/lib/svc"])
      assert.ok(
        volumes.some((volume) => volume.endsWith(`:${path}`)),
        `${name} has ${path}`,
      );
    assert.ok("SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED" in environment);
  }
});

void test("an image exposes the ports that it listens on, and is built from existing stages and files", () => {
  const names = stages.map(({ name }) => name);
  for (const line of imageLines()) {
    const stage = stages.find(({ name }) => line.source === `image ${name}`);
    const exposed = stage?.instructions.filter(({ word }) => word === "EXPOSE").flatMap(({ rest }) => rest.split(" ").map(Number));
    assert.deepEqual(exposed, portsOf(line), line.source);
  }
  const paths = readFileSync(join(TREE, "setup/paths.sh"), "utf8");
  const steps = ["data_steps", "run_steps"].flatMap((list) => new RegExp(`^readonly ${list}="([^"]+)"`, "m").exec(paths)?.[1]?.split(" ") ?? []);
  for (const { name, from, instructions } of stages) {
    assert.ok(/^\$\{DEBIAN\}$/.test(from) || names.indexOf(from) < names.indexOf(name), `${name} is from ${from}`);
    for (const { word, rest } of instructions) {
      const source = /--from=(\S+)/.exec(rest)?.[1];
      if (source !== undefined) assert.ok(names.includes(source), `${name}: ${word} ${rest}`);
      for (const step of /setup --only ([a-z -]+?)\s*(&&|$)/.exec(rest)?.[1]?.split(" ") ?? [])
        assert.ok(steps.includes(step), `${name}: set-up has the step ${step}`);
    }
  }
});

void test("variables in manifests and in the environment file of the units are settings of a server", yaml, () => {
  const named = new Set(servers.flatMap((verb) => [...knownBy(verb).defaults.keys()].map((name) => `SVC_${name.replace(".", "_").toUpperCase()}`)));
  const inManifests = all.flatMap(({ data = {} }) => Object.keys(data));
  const inPods = pods
    .flatMap(({ pod }) => pod.containers.flatMap(({ env = [] }) => env.map(({ name }) => name)))
    .filter((name) => !/^(POD_IP|AWS_.*)$/.test(name));
  const used = [...inManifests, ...inPods, ...variablesOf("systemd/svc.env")];
  assert.ok(used.length >= 4);
  for (const name of used) assert.ok(named.has(name), `${name} is a setting`);
});

void test("probes use /health at a port that the server listens on, and services lead there", yaml, () => {
  for (const { file, pod } of pods) {
    for (const container of pod.containers) {
      const ports = container.ports ?? [];
      assert.deepEqual(
        ports.map(({ containerPort }) => containerPort).sort((a, b) => a - b),
        portsOf(podLine(file, container)),
        file,
      );
      assert.equal(container.readinessProbe?.httpGet.path, "/health", file);
      const probed = ports.find(({ name }) => name === container.readinessProbe?.httpGet.port);
      const listens = [...settingsOf(podLine(file, container))].find(([setting]) => /\.(listen|port)$/.test(setting))?.[1] ?? "";
      assert.equal(probed?.containerPort, portOf(listens), `${file}: the probe's port`);
    }
  }
  for (const { file, spec } of all.filter(({ kind }) => kind === "Service")) {
    const behind = pods.filter(({ labels }) => labels["app"] === spec.selector?.["app"]);
    assert.equal(behind.length, 1, `${file}: a service of one kind of pod`);
    const ports = behind[0]?.pod.containers[0]?.ports ?? [];
    for (const { port, targetPort } of spec.ports ?? []) assert.equal(ports.find(({ name }) => name === targetPort)?.containerPort, port, file);
  }
});

void test("secrets have the specified names, the key is a file at /run/secrets/api-key, and no manifest contains one", yaml, () => {
  assert.deepEqual(
    all.filter(({ kind }) => kind === "Secret"),
    [],
  );
  const keyed = pods.filter(({ pod }) => pod.volumes?.some(({ secret }) => secret?.secretName === "svc-auth"));
  assert.deepEqual(keyed.map(({ file }) => file).sort(), ["sandboxes/gateway.yaml", "sandboxes/node.yaml"]);
  for (const { pod } of keyed) {
    const volume = pod.volumes?.find(({ secret }) => secret !== undefined)?.name;
    const mount = pod.containers[0]?.volumeMounts?.find(({ name }) => name === volume);
    assert.deepEqual([mount?.mountPath, mount?.subPath], ["/run/secrets/api-key", "api-key"]);
  }
  const seeds = pods.flatMap(({ pod }) => pod.containers.flatMap(({ env = [] }) => env.filter(({ valueFrom }) => valueFrom?.secretKeyRef !== undefined)));
  assert.deepEqual(
    seeds.map(({ name, valueFrom }) => [name, valueFrom?.secretKeyRef]),
    [
      ["SVC_SANDBOX_ACCESS_TOKEN_HASH_SEED", { name: "svc-runtime-secrets", key: "sandbox-access-token-hash-seed" }],
      ["AWS_ACCESS_KEY_ID", { name: "svc-objects", key: "access-key-id" }],
      ["AWS_SECRET_ACCESS_KEY", { name: "svc-objects", key: "secret-access-key" }],
    ],
  );
  const guide = readFileSync(join(TREE, "docs/deploy.md"), "utf8");
  for (const made of [
    "svc-auth --from-file=api-key=",
    "svc-runtime-secrets --from-file=sandbox-access-token-hash-seed=",
    "svc-objects --from-literal=access-key-id=",
  ])
    assert.ok(guide.includes(`create secret generic ${made}`), `the guide makes ${made}`);
});

void test("no pod takes the addresses of Kubernetes services for settings, and every mounted volume exists", yaml, () => {
  for (const { file, pod, spec } of pods) {
    assert.equal(pod.enableServiceLinks, false, file);
    const volumes = [...(pod.volumes ?? []), ...(spec.volumeClaimTemplates ?? []).map(({ metadata }) => metadata)].map(({ name }) => name);
    const mounted = [...(pod.initContainers ?? []), ...pod.containers].flatMap(({ volumeMounts = [] }) => volumeMounts.map(({ name }) => name));
    for (const name of mounted) assert.ok(volumes.includes(name), `${file}: the volume ${name}`);
  }
});

void test("a node's pod is privileged with its home on the host, pauses its sandboxes before it stops, and has no liveness probe", yaml, () => {
  const node = pods.find(({ kind, file }) => kind === "DaemonSet" && file === "sandboxes/node.yaml");
  const container = node?.pod.containers[0];
  assert.equal(container?.securityContext?.privileged, true);
  const home = container?.volumeMounts?.find(({ mountPath }) => mountPath === "/var/lib/svc")?.name;
  assert.equal(node?.pod.volumes?.find(({ name }) => name === home)?.hostPath?.path, "/var/lib/svc");
  assert.equal(container?.livenessProbe, undefined);
  const hooks = [container?.lifecycle?.preStop?.exec.command, container?.lifecycle?.postStart?.exec.command];
  assert.deepEqual(hooks, [
    [`${INSTALLED}/deploy/drain.sh`, "before-stop"],
    [`${INSTALLED}/deploy/drain.sh`, "after-start"],
  ]);
  assert.ok(existsSync(inTree(`${INSTALLED}/deploy/drain.sh`)));
});

void test("a kustomization names every manifest in its folder and every image that they run", yaml, () => {
  const found = kustomizations(all);
  assert.deepEqual(found.map(({ folder }) => folder).sort(), ["cache", "engines", "sandboxes"]);
  for (const { folder, named, there, images } of found) {
    assert.deepEqual(named, there, folder);
    const run = pods
      .filter(({ file }) => file.startsWith(`${folder}/`))
      .flatMap(({ pod }) => [...(pod.initContainers ?? []), ...pod.containers].map(({ image }) => image));
    assert.deepEqual(images, [...new Set(run)].sort(), folder);
  }
});

void test("kubectl builds every kustomization", needs("kubectl", "python3-yaml"), () => {
  for (const { folder } of kustomizations(all)) {
    const { status, stdout, stderr } = spawnSync("kubectl", ["kustomize", join(TREE, "deploy/kubernetes", folder)], { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    assert.doesNotMatch(stdout, /image: svc-[a-z-]+$/m, "every image has a tag");
  }
});

void test("a unit is restarted whenever it ends, reads its secrets from separate files, and a node's leaves the sandboxes alone", () => {
  for (const unit of units) {
    assert.deepEqual(unit.all("Restart"), ["always"], unit.file);
    assert.ok(Number(unit.all("TimeoutStopSec")[0]) > 10, `${unit.file}: longer than a server takes to stop`);
    const secrets = unit.all("EnvironmentFile").filter((file) => !file.startsWith("-"));
    const expected =
      { "svc-node.service": ["/etc/svc/auth.env", "/etc/svc/runtime-secrets.env"], "svc-gateway.service": ["/etc/svc/auth.env"] }[unit.file] ?? [];
    assert.deepEqual(secrets, expected, unit.file);
    assert.deepEqual(unit.all("KillMode"), unit.file === "svc-node.service" ? ["process"] : [], unit.file);
    assert.doesNotMatch(unit.text, /api_?key|seed/i, unit.file);
  }
});

void test("systemd reports no problems with the units", needs("systemd-analyze"), () => {
  const folder = mkdtempSync(join(tmpdir(), "svc-units-"));
  try {
    const files = units.map(({ file, text }) => {
      // Here the tree is not at its installed path.
      writeFileSync(join(folder, file), text.replaceAll(`${INSTALLED}/deploy`, `${TREE}/deploy`));
      return join(folder, file);
    });
    const { status, stderr, stdout } = spawnSync("systemd-analyze", ["verify", "--man=no", ...files], { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    const about = `${stdout}${stderr}`.split("\n").filter((line) => /svc-[a-z-]+\.service/.test(line));
    assert.deepEqual(about, []);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
