// The manifest of a transferred template build: its settings, the files that it is based on, and the memory that its start command left.
import { z } from "zod";
import type { BuildResult } from "../template/build-record.ts";
import type { Copy } from "../template/copies.ts";
import { type Deployment, imageShape, manifestShape, readSealed, writeSealed } from "./manifest.ts";

export const BUILD_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const text = (most: number) => z.string().max(most);
const count = z.number().int().min(0);

const templateManifest = z
  .object({
    exportedAt: text(64),
    templateID: z.string().regex(/^[a-z0-9]{20}$/),
    name: text(200),
    buildID: z.string().regex(BUILD_ID),
    createdAtMs: z.number(),
    /** The node that built it; absent in manifests of an earlier version. */
    originNodeID: text(63).optional(),
    result: z.object({
      env: z.record(text(256), z.string()),
      user: text(256),
      workdir: text(4096),
      strictFiles: z.boolean().optional(),
      cpuCount: z.number().positive(),
      memoryMB: count,
      diskSizeMB: count,
      envdVersion: text(64),
      startup: z.object({ startCmd: z.string(), readyCmd: z.string().optional() }).optional(),
    }),
    image: imageShape.optional(),
    /** A memory manifest contains the template's image. */
    memory: manifestShape.optional(),
  })
  .refine(({ image, memory }) => (image === undefined) !== (memory === undefined), "it has either files alone or memory with its files");
export type TemplateManifest = z.output<typeof templateManifest>;

export type TransferParts = Pick<TemplateManifest, "image"> | Pick<TemplateManifest, "memory">;

/** `nodeID` is this node's name. */
export function writeTemplate(
  { buildID, templateID, name, createdAtMs, result, originNodeID }: Copy,
  parts: TransferParts,
  key: string,
  nodeID: string,
): Buffer {
  const { chain: _, checkpointID: _checkpoint, envd: _envd, limits: _limits, runtime: _runtime, ...shown } = result;
  return writeSealed(
    { exportedAt: new Date().toISOString(), templateID, name, buildID, createdAtMs, originNodeID: originNodeID ?? nodeID, result: shown, ...parts },
    key,
  );
}

/** @throws SNAPSHOT_UNSUITABLE, SNAPSHOT_DAMAGED, INVALID_REQUEST. */
export const readTemplate = (written: Buffer, deployment: Deployment, where: string): TemplateManifest =>
  readSealed(templateManifest, written, deployment, where);

export type Arrived = Pick<BuildResult, "chain"> & Partial<Pick<BuildResult, "checkpointID">>;

/** Converts the manifest to the record of a copy on the receiving node. */
export function copyOf({ buildID, templateID, name, createdAtMs, originNodeID, result, memory }: TemplateManifest, { chain, checkpointID }: Arrived): Copy {
  const { startup, ...shown } = result;
  const kept = memory === undefined ? {} : { limits: memory.limits, runtime: memory.runtime };
  return {
    buildID,
    templateID,
    name,
    createdAtMs,
    originNodeID,
    result: {
      ...shown,
      startup: startup === undefined ? undefined : { startCmd: startup.startCmd, readyCmd: startup.readyCmd },
      chain,
      checkpointID,
      envd: memory?.envd.name,
      ...kept,
    },
  };
}
