// Starts a sandbox up to the point where envd answers and nobody owns it yet; undoes itself when it fails.
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { asFailure } from "@svc/contract/failures.ts";
import type { EgressPolicy } from "../network/networks.ts";
import type { Limits } from "../runtime/runtime.ts";
import type { Template } from "../template/catalogue.ts";
import { endSandbox } from "./end.ts";
import { ENVD_PORT, untilHealthy } from "./envd.ts";
import type { Node } from "./node.ts";
import type { SandboxRecord } from "./state.ts";

const ENVD_HEALTHY_MS = 30_000;
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
  const { cpu_count, memory_mb, disk_size_mb, pids } = node.settings.sandbox;
  return {
    cpuCount: cpu_count || template.cpuCount,
    memoryMB: memory_mb || template.memoryMB,
    diskSizeMB: disk_size_mb || template.diskSizeMB,
    pids,
  };
}

/** A sandbox in state warm. @throws SANDBOX_START_FAILED; then nothing of it is left. */
export async function startWarm(node: Node, template: Template, policy: EgressPolicy): Promise<SandboxRecord> {
  const { runtime, networks, registry } = node;
  const sandboxID = newSandboxID();
  const directory = join(node.home, "sandboxes", sandboxID);
  const limits = limitsFor(node, template);
  // I1: the record is there before the first part is.
  const stage = node.stages(runtime.name);
  registry.add({
    sandboxID,
    bootID: node.bootID,
    directory,
    templateID: template.templateID,
    envdVersion: node.envdVersion,
    limits,
    status: { state: "creating" },
  });
  try {
    const network = await stage("network", async () => networks?.attach(policy));
    const handle = await stage("runtime", () =>
      runtime.start({
        runtimeID: sandboxID,
        directory,
        image: template.image,
        limits,
        hostname: sandboxID,
        network,
        envd: { binary: node.envdBinary, args: ["-listen", `0.0.0.0:${ENVD_PORT}`, "-init-key", node.initKey.publicKeyBase64], env: {} },
      }),
    );
    // Known from here on: an undo finds the network slot through the handle.
    const record = await stage("started", async () => registry.move(sandboxID, { event: "started", handle }));
    await stage("envd", () => untilHealthy(handle, ENVD_HEALTHY_MS, () => runtime.isAlive(handle)));
    return record;
  } catch (error) {
    node.log.warn({ err: error, sandboxID, template: template.templateID }, "a sandbox could not be started");
    await endSandbox(node, sandboxID, "crashed");
    throw asFailure(error);
  }
}
