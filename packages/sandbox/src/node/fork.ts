// Fork: one capture of a running sandbox, and as many new sandboxes that go on from it.
import { asFailure } from "@svc/contract/failures.ts";
import type { SandboxAnswer } from "@svc/contract/fields.ts";
import type { Template } from "../template/catalogue.ts";
import { beginAgain } from "./begin-again.ts";
import { answer, checkRoom, checkTimeout, own } from "./create.ts";
import type { Node } from "./node.ts";
import { checkCapture } from "./pause.ts";
import type { RunningRecord } from "./registry.ts";
import { startWarm } from "./start.ts";
import type { Claim } from "./state.ts";

export type Forked = { readonly sandbox: SandboxAnswer } | { readonly error: { readonly code: number; readonly message: string } };

/** A result or an error per child, in no order. @throws when the capture fails; then there are no children. */
export async function forkSandbox(node: Node, sandboxID: string, count: number, timeoutSeconds: number | undefined): Promise<Forked[]> {
  if (timeoutSeconds !== undefined) checkTimeout(node, timeoutSeconds);
  const captureID = node.captures.newID();
  const begin = performance.now();
  const record = await node.turns.run(sandboxID, async () => {
    const source = node.registry.running(sandboxID);
    checkCapture(node, source, "memory");
    checkRoom(node);
    const { handle } = source.status;
    const runtime = node.runtimeNamed(handle.runtime);
    await node.stages(runtime.name)("capture", () => node.captures.take(captureID, "memory", runtime.name, (into) => runtime.capture(handle, into)));
    return source;
  });
  try {
    const template = templateOf(record, captureID);
    const forked = await Promise.all(Array.from({ length: count }, () => child(node, record, template, timeoutSeconds)));
    const children = forked.filter((each) => "sandbox" in each).length;
    node.tell("sandbox.forked", record, { children, failed: count - children });
    node.metrics.forkSeconds.observe((performance.now() - begin) / 1000);
    return forked;
  } finally {
    await node.captures.remove(captureID);
  }
}

async function child(node: Node, source: RunningRecord, template: Template, timeoutSeconds: number | undefined): Promise<Forked> {
  try {
    checkRoom(node);
    node.creating++;
    try {
      const { claim } = source.status;
      const asked: Claim = {
        ...claim,
        timeoutSeconds: timeoutSeconds ?? claim.timeoutSeconds,
        parentSandboxID: source.sandboxID,
        forkDepth: claim.forkDepth + 1,
      };
      const owned = await beginAgain(node, async () => {
        const warm = await node.gate.run(() => startWarm(node, template, claim.egress));
        return own(node, warm, asked, undefined, "copied");
      });
      return { sandbox: answer(node, owned) };
    } finally {
      node.creating--;
    }
  } catch (error) {
    const failure = asFailure(error);
    return { error: { code: failure.row.http, message: failure.message } };
  }
}

/** The source as something to start from; only for its own children. */
function templateOf({ templateID, image, limits, envd, envdVersion, status }: RunningRecord, captureID: string): Template {
  const { claim, handle } = status;
  return {
    name: claim.alias ?? "",
    templateID,
    cpuCount: limits.cpuCount,
    memoryMB: limits.memoryMB,
    diskSizeMB: limits.diskSizeMB,
    user: claim.user,
    workdir: claim.workdir,
    env: { ...claim.envVars },
    createdAt: "",
    recipe: captureID,
    source: "fork",
    binds: [...image.binds],
    folder: "",
    image,
    captureID,
    envd,
    envdVersion,
    runtime: handle.runtime,
    limits,
    verified: true,
  };
}
