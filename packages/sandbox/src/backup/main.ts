// `svc backup create|verify|restore`: a node's state in a directory or in object storage, and back.
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { asFailure, Failure, fail, isDiskFull } from "@svc/contract/failures.ts";
import { type HelpPage, renderHelp, usageOfPage } from "@svc/contract/help.ts";
import { complained, loadConfig } from "@svc/kit/config.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { etcdEndpoints } from "@svc/kit/etcd/endpoints.ts";
import { openSentences } from "@svc/kit/log.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { openObjects } from "@svc/kit/objects/open-objects.ts";
import { objectsSettings } from "@svc/kit/objects/settings.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { needsPeerCertificates, peersFlagNames, peersSettings } from "@svc/kit/peers/settings.ts";
import { z } from "zod";
import { volumesDirectory, volumesSettings } from "../volumes/settings.ts";
import { type Manifest, readManifest, verifyArchives } from "./archive.ts";
import { createBackup } from "./create.ts";
import { restoreBackup } from "./restore.ts";

const page: HelpPage = {
  usage: ["svc backup create TARGET [--home DIR]", "svc backup verify TARGET", "svc backup restore TARGET [--home DIR]"],
  about:
    "Backs up a node: its sandboxes' records, paused sandboxes, snapshots, templates, volumes, secrets and keys, as of one moment, while it runs or not. TARGET is a directory, or s3://BUCKET/PREFIX.",
  commands: [
    ["create", "write a backup to TARGET, which must have none; a backup without its manifest, written last, is none"],
    ["verify", "read all of it, and name each damaged file and what it holds"],
    ["restore", "write it into an empty home; start a node there with svc up or svc node"],
  ],
  options: [
    ["--home DIR", "the node's home (default: SVC_HOME, else /var/lib/svc for root, ~/.local/share/svc for others)"],
    ["--config FILE", "the settings, of which objects.* say how s3:// is reached"],
    ["--etcd URL,URL", "etcd of the deployment: create adds its records; restore writes them where there are none"],
    ["--peer-certs DIR", "the certificate to show to an etcd at https:// (svc certs issue writes it)"],
    ["--copy-objects", "create adds what the deployment's object storage has (objects.url); otherwise the backup refers to it"],
    ["--output table|json", "how to print"],
  ],
  more: "A backup holds secrets: a reader of it can act as the node. Exit codes: 0 success, 1 failure or damage, 2 usage error.",
  examples: ["svc backup create /backups/$(date +%F)", "svc backup verify /backups/2026-08-01", "svc backup restore s3://backups/node-a --home /var/lib/svc"],
};
const EXIT_USAGE = 2;
const COPY = "--copy-objects";

const settingsShape = z.object({
  objects: objectsSettings,
  volumes: volumesSettings,
  node: z.object({ audit_log: z.string() }),
  cluster: z.object({ etcd: etcdEndpoints, name: z.string() }),
  peers: peersSettings,
  store: z.object({ brand: z.array(z.string()).min(1) }),
});

export async function main(argv: readonly string[]): Promise<number> {
  if (argv.includes("--help") || argv.includes("-h")) {
    process.stdout.write(renderHelp(page));
    return 0;
  }
  const [verb, target, ...flags] = argv;
  if (!["create", "verify", "restore"].includes(verb ?? "") || target === undefined || target.startsWith("-")) {
    const given = argv.length === 0 ? "nothing" : JSON.stringify(argv.join(" "));
    process.stderr.write(`svc backup: expected create, verify or restore and a TARGET, got ${given}\n${usageOfPage(page, "svc backup --help")}`);
    return EXIT_USAGE;
  }
  try {
    return await run(verb as "create" | "verify" | "restore", target, flags);
  } catch (error) {
    if (isDiskFull(error)) return complained("backup", asFailure(error));
    if (!(error instanceof Failure)) throw error;
    return complained("backup", error);
  }
}

async function run(verb: "create" | "verify" | "restore", target: string, flags: readonly string[]): Promise<number> {
  const isJSON = isToPrintJSON(flags);
  const isCopied = flags.includes(COPY);
  const argv = flags.filter((flag) => flag !== COPY).filter((flag, at, all) => !/^(-o|--output)(=|$)/.test(flag) && !/^(-o|--output)$/.test(all[at - 1] ?? ""));
  const loaded = loadConfig({ server: "backup", schema: settingsShape, flagNames: { ...peersFlagNames, etcd: "cluster.etcd" }, argv, about: page.about });
  if (loaded === "help") return 0;
  const { settings, home } = loaded;
  const url = /^(file|s3):\/\//.test(target) ? target : pathToFileURL(resolve(target)).href;
  if (verb === "create" && url.startsWith(`${pathToFileURL(home).href}/`))
    fail("INVALID_REQUEST", `${target} is below the home ${home}, and would be lost with it: give a directory elsewhere, at best on another machine's disk`);
  const objects = await openObjects({ ...settings.objects, url }, "disk", process.env);
  const log = openSentences("svc backup");
  const { cluster, store, objects: stored } = settings;
  needsPeerCertificates("cluster.etcd", cluster.etcd, settings.peers);
  const certificates = openPeerCertificates(settings.peers, log);
  const etcd =
    cluster.etcd.length === 0
      ? undefined
      : { etcd: openEtcd({ endpoints: cluster.etcd, certificates }), name: cluster.name, store: `${store.brand[0]}-store/` };
  const storage = stored.url === "" || verb === "verify" ? undefined : await openObjects(stored, "disk", process.env);
  try {
    if (verb === "create") {
      const parts = {
        home,
        auditLog: settings.node.audit_log,
        volumesDirectory: volumesDirectory(home, settings.volumes),
        objects,
        log,
        etcd,
        storage: storage && { objects: storage, isCopied },
      };
      print(await createBackup(parts), isJSON, `backed up ${home} to ${url}`);
      return 0;
    }
    if (verb === "restore") {
      const { manifest, notes } = await restoreBackup({ home, objects, log, etcd, storage });
      print(manifest, isJSON, `restored ${home} from ${url}: the state of ${manifest.nodeID} at ${manifest.startedAt}`);
      if (!isJSON) for (const note of notes) process.stdout.write(`${note}\n`);
      return 0;
    }
    return await verify(objects, isJSON);
  } finally {
    await Promise.all([objects.close(), storage?.close(), etcd?.etcd.close()]);
    certificates?.close();
  }
}

async function verify(objects: Objects, isJSON: boolean): Promise<number> {
  const manifest = await readManifest(objects);
  const { faults, entries } = await verifyArchives(objects, manifest);
  if (isJSON) process.stdout.write(`${JSON.stringify({ ok: faults.length === 0, entries, faults })}\n`);
  else if (faults.length === 0) print(manifest, false, `${objects.url} is intact: ${entries} files`);
  for (const fault of faults) process.stderr.write(`svc backup: ${fault}\n`);
  return faults.length === 0 ? 0 : 1;
}

/** Prints what a backup has. */
function print(manifest: Manifest, isJSON: boolean, what: string): void {
  const { archives, counts, volumes, notInHome, startedAt, finishedAt, nodeID, backupID } = manifest;
  const sizeBytes = archives.reduce((sum, archive) => sum + archive.sizeBytes, 0);
  if (isJSON) {
    const files = archives.reduce((sum, archive) => sum + archive.entries.length, 0);
    process.stdout.write(`${JSON.stringify({ backupID, nodeID, startedAt, finishedAt, sizeBytes, files, ...counts, volumes: volumes.length, notInHome })}\n`);
    return;
  }
  const { sandboxes = 0, paused = 0, snapshots = 0, templates = 0, etcd } = counts;
  const parts = [
    `sandboxes ${sandboxes} (paused ${paused})`,
    `snapshots ${snapshots}`,
    `templates ${templates}`,
    `volumes ${volumes.length}`,
    ...(etcd === undefined ? [] : [`records of etcd ${etcd}`]),
  ];
  process.stdout.write(`${what}\n${parts.join(", ")}, ${(sizeBytes / 1e6).toFixed(1)} MB\n`);
  const stored = manifest.objects;
  if (stored !== undefined)
    process.stdout.write(stored.isCopied ? `objects of ${stored.url}: ${stored.copies.length}\n` : `refers to the objects in ${stored.url}\n`);
  for (const each of notInHome) process.stdout.write(`not in the backup: ${each}\n`);
}

function isToPrintJSON(flags: readonly string[]): boolean {
  const at = flags.findIndex((flag) => /^(-o|--output)(=|$)/.test(flag));
  if (at === -1) return false;
  const value = flags[at]?.split("=")[1] ?? flags[at + 1];
  if (value !== "table" && value !== "json") fail("INVALID_REQUEST", `--output: expected table or json, got ${JSON.stringify(value ?? "")}`);
  return value === "json";
}

if (process.argv[1] === import.meta.filename) process.exit(await main(process.argv.slice(2)));
