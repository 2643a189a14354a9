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
import { UNFINISHED } from "./home-parts.ts";
import { clearStaging, stageHome } from "./stage.ts";
import { tarOf } from "./tar-stream.ts";

const STAGE_TIMEOUT_MS = 30 * 60_000;

export type CreateParts = { readonly home: string; readonly auditLog: string; readonly volumesDirectory: string; readonly objects: Objects; readonly log: Log };

/** @throws INVALID_REQUEST where there is a backup already; nothing of this one is left after a failure. */
export async function createBackup({ home, auditLog, volumesDirectory, objects, log }: CreateParts): Promise<Manifest> {
  const startedAt = new Date().toISOString();
  if (!existsSync(join(home, "sandboxes.db"))) fail("SETTING_INVALID", `${home} is not the home of a node: it has no sandboxes.db; name it with --home`);
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
    staged = await stagedByNode(home);
    if (staged === undefined) {
      // The lock is this process's until it ends, so that no node starts meanwhile.
      await lockHome(home, "node");
      const isShared = volumesDirectory !== join(home, "volumes");
      contents = isShared ? undefined : openVolumeContents({ directory: volumesDirectory, spawner, log });
      clearStaging(home);
      const { backupID, folder } = await stageHome({ home, auditLog, spawner, hold: async () => async () => {} });
      staged = { backupID, folder, nodeID: nodeIDOf(home), volumes: (await contents?.mounted()) ?? [], notInHome: [] };
    }
    const counts = settleDatabases(staged.folder);
    archives.push(await storeArchive(objects, "home", tarOf(staged.folder)));
    for (const { volumeID, files } of staged.volumes) archives.push(await storeArchive(objects, `volume-${volumeID}`, tarOf(files)));
    const manifest: Manifest = {
      version: 1,
      backupID: staged.backupID,
      startedAt,
      finishedAt: new Date().toISOString(),
      madeBy: madeBy(),
      nodeID: staged.nodeID,
      home,
      counts,
      volumes: staged.volumes.map(({ volumeID, name }) => ({ volumeID, name })),
      notInHome: staged.notInHome,
      archives,
    };
    await writeManifest(objects, manifest);
    return manifest;
  } catch (error) {
    await removePieces(objects).catch(() => undefined);
    throw error;
  } finally {
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
