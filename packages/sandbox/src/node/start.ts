// Starts a sandbox up to the point where envd answers and nobody owns it yet; undoes itself when it fails.
import { randomBytes, randomUUID } from "node:crypto";
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { EgressPolicy, NetworkSlot } from "../network/networks.ts";
import type { Limits } from "../runtime/runtime.ts";
import type { Template } from "../template/catalogue.ts";
import { runStartup } from "../template/startup.ts";
import { bringUp } from "./bring-up.ts";
import { endSandbox } from "./end.ts";
import type { Node } from "./node.ts";
import type { SandboxRecord } from "./state.ts";

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

/** A sandbox in state warm. @throws SANDBOX_START_FAILED, SNAPSHOT_DAMAGED; then nothing of it is left. */
export async function startWarm(node: Node, template: Template, egress: EgressPolicy): Promise<SandboxRecord> {
  const { registry } = node;
  const runtime = template.runtime === undefined ? node.runtime : node.runtimeNamed(template.runtime);
  const sandboxID = newSandboxID();
  const directory = join(node.home, "sandboxes", sandboxID);
  const limits = limitsFor(node, template);
  const envd = template.envd ?? node.envd;
  const guestBootID = randomUUID();
  // I1: the record is there before the first part is.
  const record: SandboxRecord = {
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
  };
  registry.add(record);
  let slot: NetworkSlot | undefined;
  try {
    const { captureID, startup, env, user, workdir } = template;
    const up = () =>
      bringUp(node, {
        record,
        runtime,
        guestBootID,
        captureID,
        isVerified: template.verified,
        egress,
        onSlot: (attached) => {
          slot = attached;
        },
        // Known from here on: an undo finds the network slot through the handle.
        onStarted: (handle) => void registry.move(sandboxID, { event: "started", handle }),
      });
    const handle = captureID === undefined ? await up() : await node.captures.holding(captureID, up);
    // Where its driver keeps no memory, a template's program is started anew each time.
    if (captureID === undefined && startup !== undefined) {
      await node.stages(runtime.name)("startup", () => runStartup(handle, runtime, startup, { env, user, workdir }));
    }
    return registry.get(sandboxID) ?? fail("SANDBOX_START_FAILED", "the sandbox ended while it was started");
  } catch (error) {
    node.log.warn({ err: error, sandboxID, template: template.templateID }, "a sandbox could not be started");
    const { status } = registry.get(sandboxID) ?? {};
    await endSandbox(node, sandboxID, "crashed");
    // Before its start a record knows no slot.
    if (status?.state === "creating" && slot !== undefined) await node.networks?.detach(slot);
    throw asFailure(error);
  }
}
