// `svc backup create`: the state of one node's home, as of one moment, in a directory or in object storage.
import { existsSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { type StagedBackup, stageBackup } from "@svc/contract/backup.ts";
import { call } from "@svc/contract/call.ts";
import { fail } from "@svc/contract/failures.ts";
import { suppliedApiKey } from "@svc/kit/api-key.ts";
import { treeCommit } from "@svc/kit/commit.ts";
import { lockHome } from "@svc/kit/home-lock.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { readSecretFile } from "@svc/kit/secret.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { nodeIDOf } from "../cluster/node-id.ts";
import { startTicksOf } from "../runtime/process.ts";
import { openVolumeContents, type VolumeContents } from "../volumes/contents.ts";
import { type Archive, hasManifest, type Manifest, removePieces, storeArchive, writeManifest } from "./archive.ts";
import { settleDatabases } from "./databases.ts";
import { copyObjects, type EtcdScope, storeEtcd } from "./deployment.ts";
import { STAGING, UNFINISHED } from "./home-parts.ts";
import { serverFolders } from "./other-servers.ts";
import { clearStaging, stageHome } from "./stage.ts";
import { tarOf } from "./tar-stream.ts";

const STAGE_TIMEOUT_MS = 30 * 60_000;

export type CreateParts = {
  readonly home: string;
  readonly auditLog: string;
  readonly volumesDirectory: string;
  readonly objects: Objects;
  readonly log: Log;
  /** etcd of the node's deployment, and its object storage. */
  readonly etcd?: EtcdScope | undefined;
  readonly storage?: { readonly objects: Objects; readonly isCopied: boolean } | undefined;
};

/** @throws INVALID_REQUEST where there is a backup already; nothing of this one is left after a failure. */
export async function createBackup({ home, auditLog, volumesDirectory, objects, log, etcd, storage }: CreateParts): Promise<Manifest> {
  const startedAt = new Date().toISOString();
  const isOfNode = existsSync(join(home, "sandboxes.db"));
  if (!isOfNode && !serverFolders.some((name) => existsSync(join(home, name))))
    fail("SETTING_INVALID", `${home} is not the home of a node or of a store's master: it has neither sandboxes.db nor store/; name it with --home`);
  if (existsSync(join(home, UNFINISHED))) fail("HOST_UNSUITABLE", `${home} was not restored completely: run svc backup restore again`);
  if (await hasManifest(objects))
    fail("INVALID_REQUEST", `there is a backup in ${objects.url} already, and it was not changed: give another directory or prefix, for example with the date`);
  await lockHome(home, "backup");
  await removePieces(objects);
  const spawner = openSpawner();
  const archives: Archive[] = [];
  let staged: StagedBackup | undefined;
  let contents: VolumeContents | undefined;
  try {
    // First what names chunks, then the records, then the chunks: all that the records name is there.
    const named = storage?.isCopied === true ? await copyObjects(storage.objects, objects, false) : [];
    const ofEtcd = etcd === undefined ? undefined : await storeEtcd(etcd, objects, join(home, STAGING, "etcd"));
    staged = await stagedByNode(home);
    if (staged === undefined) {
      // The lock is this process's until it ends, so that no node starts meanwhile.
      await lockHome(home, "node");
      const isShared = volumesDirectory !== join(home, "volumes");
      contents = isShared ? undefined : openVolumeContents({ directory: volumesDirectory, spawner, log });
      clearStaging(home);
      const { backupID, folder } = await stageHome({ home, auditLog, spawner, hold: async () => async () => {} });
      staged = { backupID, folder, nodeID: isOfNode ? nodeIDOf(home) : "", volumes: (await contents?.mounted()) ?? [], notInHome: [] };
    }
    const counts = settleDatabases(staged.folder);
    archives.push(await storeArchive(objects, "home", tarOf(staged.folder)));
    for (const { volumeID, files } of staged.volumes) archives.push(await storeArchive(objects, `volume-${volumeID}`, tarOf(files)));
    if (ofEtcd !== undefined) archives.push(ofEtcd.archive);
    const chunks = storage?.isCopied === true ? await copyObjects(storage.objects, objects, true) : [];
    const manifest: Manifest = {
      version: 1,
      backupID: staged.backupID,
      startedAt,
      finishedAt: new Date().toISOString(),
      madeBy: madeBy(),
      nodeID: staged.nodeID,
      home,
      counts: { ...counts, ...(ofEtcd === undefined ? {} : { etcd: ofEtcd.records }) },
      volumes: staged.volumes.map(({ volumeID, name }) => ({ volumeID, name })),
      notInHome: staged.notInHome,
      archives,
      ...(storage === undefined ? {} : { objects: { url: storage.objects.url, isCopied: storage.isCopied, copies: [...named, ...chunks] } }),
    };
    await writeManifest(objects, manifest);
    return manifest;
  } catch (error) {
    await removePieces(objects).catch(() => undefined);
    throw error;
  } finally {
    rmSync(join(home, STAGING, "etcd"), { recursive: true, force: true });
    if (staged !== undefined) rmSync(dirname(staged.folder), { recursive: true, force: true });
    await contents?.close();
    await spawner[Symbol.asyncDispose]();
  }
}

/** Asks the node that runs on this home; undefined if none does. */
async function stagedByNode(home: string): Promise<StagedBackup | undefined> {
  let node: { pid: number; startTicks: number; address: string };
  try {
    node = JSON.parse(readFileSync(join(home, "node.json"), "utf8")) as typeof node;
  } catch {
    return undefined;
  }
  if (startTicksOf(node.pid) !== node.startTicks) return undefined;
  const supplied = suppliedApiKey({ env: process.env })?.secret;
  const apiKey = supplied ?? readSecretFile(join(home, "secrets/api-key"))?.trim();
  if (apiKey === undefined)
    return fail("UNAUTHENTICATED", `process ${node.pid} runs a node on ${home} whose API key is not in its home: give it as SVC_API_KEY, as to the node`);
  return call(stageBackup, {}, { baseURL: node.address, apiKey, timeoutMs: STAGE_TIMEOUT_MS });
}

function madeBy(): string {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string };
  return `${version} ${treeCommit()}`.trim();
}
