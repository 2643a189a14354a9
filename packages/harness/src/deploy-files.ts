// Parses deploy/: the stages of the container file, systemd units, Kubernetes manifests, and the command lines in them.
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";

export const TREE = join(import.meta.dirname, "../../..");
const DEPLOY = join(TREE, "deploy");
/** The tree's path in images and units. */
export const INSTALLED = "/opt/svc";
export const SERVE = `${INSTALLED}/deploy/serve.sh`;

/** A verb such as `store master` and its flags; `source` names the file or unit in a failure. */
export type ServerLine = { readonly source: string; readonly verb: string; readonly flags: readonly string[] };

/** @throws if the command does not run a server with serve.sh. */
export function serverLine(source: string, args: readonly string[]): ServerLine {
  const at = args.indexOf(SERVE);
  if (at < 0) throw new Error(`${source}: ${args.join(" ")} does not run ${SERVE}`);
  const rest = args.slice(at + 1);
  const end = rest.findIndex((word) => word.startsWith("-"));
  return { source, verb: rest.slice(0, end < 0 ? undefined : end).join(" "), flags: end < 0 ? [] : rest.slice(end) };
}

export type Stage = {
  readonly name: string;
  readonly from: string;
  readonly instructions: readonly { readonly word: string; readonly rest: string }[];
};

export function containerStages(): Stage[] {
  const text = readFileSync(join(DEPLOY, "container/Containerfile"), "utf8").replace(/\\\n/g, "");
  const stages: { name: string; from: string; instructions: { word: string; rest: string }[] }[] = [];
  for (const line of text.split("\n")) {
    const [, word = "", rest = ""] = /^([A-Z]+)\s+(.*)$/.exec(line) ?? [];
    const [, from, name] = word === "FROM" ? (/^(\S+) AS (\S+)$/.exec(rest) ?? []) : [];
    if (from !== undefined && name !== undefined) stages.push({ name, from, instructions: [] });
    else if (word !== "") stages.at(-1)?.instructions.push({ word, rest });
  }
  return stages;
}

/** Returns the last such instruction of a stage, parsed as a JSON list. */
export function listOf(stage: Stage, word: "ENTRYPOINT" | "CMD"): string[] {
  const found = stage.instructions.findLast((instruction) => instruction.word === word);
  return found === undefined ? [] : (JSON.parse(found.rest) as string[]);
}

/** Returns the entry point of an image, by the image's name. */
export function entryOf(stages: readonly Stage[], image: string): string[] {
  const stage = stages.find(({ name }) => `svc-${name}` === image);
  if (stage === undefined) throw new Error(`no stage of the container file makes the image ${image}`);
  return listOf(stage, "ENTRYPOINT");
}

export type Unit = { readonly file: string; readonly text: string; all(key: string): string[] };

export function systemdUnits(): Unit[] {
  const folder = join(DEPLOY, "systemd");
  return readdirSync(folder)
    .filter((name) => name.endsWith(".service"))
    .map((name) => {
      const text = readFileSync(join(folder, name), "utf8");
      const pairs = [...text.matchAll(/^([A-Za-z]+)=(.*)$/gm)].map(([, key = "", value = ""]) => [key, value] as const);
      return { file: name, text, all: (key) => pairs.filter(([each]) => each === key).map(([, value]) => value) };
    });
}

/** Returns the names in a file of NAME=VALUE lines. */
export function variablesOf(file: string): string[] {
  const text = readFileSync(join(DEPLOY, file), "utf8");
  return [...text.matchAll(/^([A-Z_]+)=/gm)].map(([, name = ""]) => name);
}

export type Probe = { readonly httpGet: { readonly path: string; readonly port: string } };
export type Container = {
  readonly name: string;
  readonly image: string;
  readonly command?: readonly string[];
  readonly args?: readonly string[];
  readonly env?: readonly { readonly name: string; readonly valueFrom?: { readonly secretKeyRef?: { readonly name: string; readonly key: string } } }[];
  readonly ports?: readonly { readonly name: string; readonly containerPort: number }[];
  readonly readinessProbe?: Probe;
  readonly livenessProbe?: Probe;
  readonly lifecycle?: { readonly preStop?: Hook; readonly postStart?: Hook };
  readonly securityContext?: { readonly privileged?: boolean };
  readonly volumeMounts?: readonly { readonly name: string; readonly mountPath: string; readonly subPath?: string }[];
};
type Hook = { readonly exec: { readonly command: readonly string[] } };
export type Pod = {
  readonly enableServiceLinks?: boolean;
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
  readonly volumes?: readonly {
    readonly name: string;
    readonly secret?: { readonly secretName: string };
    readonly hostPath?: { readonly path: string };
  }[];
};
type Labels = Readonly<Record<string, string>>;
export type Manifest = {
  readonly file: string;
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
  readonly resources?: readonly string[];
  readonly images?: readonly { readonly name: string }[];
  readonly data?: Labels;
  readonly spec: {
    readonly selector?: Labels & { readonly matchLabels?: Labels };
    readonly podSelector?: { readonly matchLabels?: Labels };
    readonly ports?: readonly { readonly name: string; readonly port: number; readonly targetPort: string }[];
    readonly template?: { readonly metadata: { readonly labels: Labels }; readonly spec: Pod };
    readonly volumeClaimTemplates?: readonly { readonly metadata: { readonly name: string } }[];
  };
};

/** One Python process parses all files, since every test host has its YAML parser. */
const PARSE = `import json, sys, yaml
for file in sys.argv[1:]:
    for document in filter(None, yaml.safe_load_all(open(file))):
        print(json.dumps({"file": file, **document}))`;

export const parsed = <T>(files: readonly string[]): T[] =>
  execFileSync("/usr/bin/python3", ["-c", PARSE, ...files], { encoding: "utf8" })
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as T);

export type Service = {
  readonly image: string;
  readonly command: readonly string[];
  readonly environment?: Labels;
  readonly volumes?: readonly string[];
  readonly depends_on?: readonly string[];
};

/** Returns the services of the compose file by name. */
export function composeServices(): Map<string, Service> {
  const [file] = parsed<{ services: Record<string, Service> }>([join(DEPLOY, "compose/three-nodes.yaml")]);
  return new Map(Object.entries(file?.services ?? {}));
}

export function manifests(): Manifest[] {
  const folder = join(DEPLOY, "kubernetes");
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".yaml"));
  return parsed<Manifest>(files.map((name) => join(folder, name))).map((document) => ({ ...document, file: document.file.slice(folder.length + 1) }));
}

/** Returns the kustomizations, each with the files next to it. */
export function kustomizations(all: readonly Manifest[]): { folder: string; named: readonly string[]; there: readonly string[]; images: readonly string[] }[] {
  return all
    .filter(({ kind }) => kind === "Kustomization")
    .map(({ file, resources = [], images = [] }) => {
      const folder = file.slice(0, file.lastIndexOf("/"));
      const there = new Set(all.filter((other) => other.file.startsWith(`${folder}/`) && other.kind !== "Kustomization").map((other) => basename(other.file)));
      return { folder, named: [...resources].sort(), there: [...there].sort(), images: images.map(({ name }) => name).sort() };
    });
}
