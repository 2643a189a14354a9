// Checks whether a transferred checkpoint can start on this node; if not, the failure says why and what to do.
import { access } from "node:fs/promises";
import { fail } from "@svc/contract/failures.ts";
import { missingHere, thisProcessor } from "../runtime/cpu.ts";
import { programPath } from "../runtime/gvisor-programs.ts";
import type { RuntimeName } from "../runtime/runtime.ts";
import type { Deployment, ReadManifest } from "./manifest.ts";

export type Here = {
  readonly home: string;
  /** Returns true if this node has the private half of an envd's key. */
  readonly isOurs: Deployment["isOurs"];
  readonly runtimes: ReadonlySet<RuntimeName>;
  /** Returns the program of new sandboxes if memory needs the very program that wrote it. */
  readonly program: (runtime: RuntimeName) => Promise<string | undefined>;
};

/** @throws SNAPSHOT_UNSUITABLE. */
export async function mustFit({ manifest, isOwn }: ReadManifest, here: Here): Promise<void> {
  const unsuitable = (why: string) => fail("SNAPSHOT_UNSUITABLE", `the snapshot cannot be used here: ${why}`);
  const { runtime, kind, program, programFile, processor, deployment } = manifest;
  if (!here.runtimes.has(runtime)) unsuitable(`it needs the ${runtime} driver, and this node has ${[...here.runtimes].join(", ")}`);
  if (kind === "filesystem") {
    // Root unpacks these files, and only gVisor does so inside the sandbox.
    if (!isOwn && runtime !== "gvisor")
      unsuitable(`it is of another deployment, and files of the ${runtime} driver are taken from nodes of the same one alone`);
    return;
  }
  if (!here.isOurs(deployment) || !isOwn)
    unsuitable(
      "it holds memory of another deployment, whose envd obeys that deployment's key alone; take a snapshot of files there (svc snapshot create --files-only) and export that, or give both nodes one deployment secret (node.deployment_secret_file)",
    );
  const misfit = processor === undefined ? undefined : missingHere(processor, thisProcessor());
  if (misfit !== undefined) unsuitable(`${misfit}, which its programs may be using: it starts on a node whose processor has at least that, or can be deleted`);
  if (program === undefined || programFile !== undefined || program === (await here.program(runtime))) return;
  const isKept = await access(programPath(here.home, program)).then(
    () => true,
    () => false,
  );
  if (!isKept)
    unsuitable(
      `its memory was written by ${program}, another version of runsc than this node's, and it does not bring that along: export it again, with --with-base where it is a file, on a node that has bin/${program} in its home; or copy that program to the same place here`,
    );
}
