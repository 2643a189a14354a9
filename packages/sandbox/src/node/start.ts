// Starts a sandbox up to the point where envd answers and nobody owns it yet; undoes itself when it fails.
import { randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import { asFailure } from "@svc/contract/failures.ts";
import type { EgressPolicy, NetworkSlot } from "../network/networks.ts";
import type { Limits, Runtime } from "../runtime/runtime.ts";
import type { Template } from "../template/catalogue.ts";
import { runStartup } from "../template/startup.ts";
import { endSandbox } from "./end.ts";
import { ENVD_PORT, untilHealthy } from "./envd.ts";
import { envdPath } from "./envd-binary.ts";
import type { Node } from "./node.ts";
import type { SandboxRecord } from "./state.ts";

export const ENVD_HEALTHY_MS = 30_000;
const ID_LENGTH = 20;
const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789";

/** `i` and 19 of [a-z0-9]: a DNS label without `-`, so that <port>-<id> parses one way only. */
export function newSandboxID(): string {
  let id = "i";
  while (id.length < ID_LENGTH) {
    for (const byte of randomBytes(ID_LENGTH)) {
      // 252 = 7 * 36: bytes above would favour the first letters.
      if (byte < 252 && id.length < ID_LENGTH) id += alphabet[byte % 36];
    }
  }
  return id;
}

export function limitsFor(node: Node, template: Template): Limits {
  // Memory goes on in the space it was taken in.
  if (template.limits !== undefined) return template.limits;
  const { cpu_count, memory_mb, disk_size_mb, pids } = node.settings.sandbox;
  return {
    cpuCount: cpu_count || template.cpuCount,
    memoryMB: memory_mb || template.memoryMB,
    diskSizeMB: disk_size_mb || template.diskSizeMB,
    pids,
  };
}

/** How envd is started inside; a restored one was started like this, too. */
export function envdSpec(node: Node, name: string) {
  return { binary: envdPath(node.home, name), args: ["-listen", `0.0.0.0:${ENVD_PORT}`, "-init-key", node.initKey.publicKeyBase64], env: {} };
}

/** A sandbox in state warm. @throws SANDBOX_START_FAILED, SNAPSHOT_DAMAGED; then nothing of it is left. */
export async function startWarm(node: Node, template: Template, egress: EgressPolicy): Promise<SandboxRecord> {
  const { networks, registry } = node;
  const runtime = template.runtime === undefined ? node.runtime : node.runtimeNamed(template.runtime);
  const sandboxID = newSandboxID();
  const directory = join(node.home, "sandboxes", sandboxID);
  const limits = limitsFor(node, template);
  const envd = template.envd ?? node.envd;
  const guestBootID = randomUUID();
  // I1: the record is there before the first part is.
  registry.add({
    sandboxID,
    bootID: node.bootID,
    directory,
    templateID: template.templateID,
    captureID: template.captureID,
    image: template.image,
    envdVersion: template.envdVersion ?? node.envdVersion,
    envd,
    guestBootID,
    limits,
    status: { state: "creating" },
  });
  const slot: { network?: NetworkSlot | undefined } = {};
  try {
    const { captureID } = template;
    const up = () => bringUp(node, runtime, registry.get(sandboxID) as SandboxRecord, template, egress, slot);
    return captureID === undefined ? await up() : await node.captures.holding(captureID, up);
  } catch (error) {
    node.log.warn({ err: error, sandboxID, template: template.templateID }, "a sandbox could not be started");
    const { status } = registry.get(sandboxID) ?? {};
    await endSandbox(node, sandboxID, "crashed");
    // Before its start a record knows no slot.
    if (status?.state === "creating" && slot.network !== undefined) await networks?.detach(slot.network);
    throw asFailure(error);
  }
}

async function bringUp(
  node: Node,
  runtime: Runtime,
  { sandboxID, directory, image, limits, envd, guestBootID }: SandboxRecord,
  { captureID, verified: known, startup, env, user, workdir }: Template,
  egress: EgressPolicy,
  slot: { network?: NetworkSlot | undefined },
): Promise<SandboxRecord> {
  const stage = node.stages(runtime.name);
  const from = captureID === undefined ? undefined : await node.captures.find(captureID);
  await node.images.ready(image);
  // Checksums are reckoned while the runtime reads the same files; a damaged one is never handed over.
  const verified = known === true || from === undefined ? undefined : node.captures.verify(from.captureID);
  verified?.catch(() => undefined);
  const network = await stage("network", async () => node.networks?.attach(egress));
  slot.network = network;
  const start = () =>
    runtime.start({
      runtimeID: sandboxID,
      directory,
      image,
      limits,
      hostname: sandboxID,
      bootID: guestBootID,
      network,
      envd: envdSpec(node, envd),
      ...(from === undefined ? {} : { from: { directory: from.directory, kind: from.kind } }),
    });
  const handle = await stage(from === undefined ? "runtime" : "restore", start).catch(async (error: unknown) => {
    // A restore that failed because of damage is called by that name.
    await verified;
    throw error;
  });
  // Known from here on: an undo finds the network slot through the handle.
  const record = await stage("started", async () => node.registry.move(sandboxID, { event: "started", handle }));
  await verified;
  await stage("envd", () => untilHealthy(handle, ENVD_HEALTHY_MS, () => runtime.isAlive(handle)));
  // Where its driver keeps no memory, a template's program is started anew each time.
  if (from === undefined && startup !== undefined) await stage("startup", () => runStartup(handle, runtime, startup, { env, user, workdir }));
  return record;
}
