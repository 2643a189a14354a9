// The body of POST /v1/route-migrations/copy and /move.
import { z } from "zod";
import type { MigrationMode, MigrationRequest } from "./task.ts";

const MAX_NAME = 1024;
const MAX_KEY = 4096;
const MAX_TARGETS = 64;
const MAX_RETRIES = 1000;

const name = z
  .string()
  .max(MAX_NAME)
  .refine((text) => text.trim() !== "", "must not be blank");
const optionalName = name.nullish().transform((value) => value ?? null);

const body = z.strictObject({
  authority: name,
  tenant: name,
  domain: optionalName,
  object_set: optionalName,
  key: z
    .string()
    .max(MAX_KEY)
    .refine((text) => text.trim() !== "", "must not be blank"),
  source_segment: name,
  target_segments: z.array(name).max(MAX_TARGETS),
  task_executor: name,
  max_retries: z.number().int("expected a whole number").min(0, "must be 0 or more").max(MAX_RETRIES).nullish(),
});

export const migrationBody = (mode: MigrationMode) =>
  body
    .superRefine(({ target_segments: targets, source_segment: source }, context) => {
      const wrong = (message: string) => context.addIssue({ code: "custom", path: ["target_segments"], message });
      if (mode === "copy" && targets.length === 0) wrong("copy requires at least one target segment");
      if (mode === "move" && targets.length !== 1) wrong(`move requires exactly one target segment, got ${targets.length}`);
      if (new Set(targets).size !== targets.length) wrong("a segment is named twice");
      if (targets.includes(source)) wrong("the source segment cannot be a target");
    })
    .transform(({ max_retries, ...request }): { request: MigrationRequest; maxRetries: number | undefined } => ({
      request: { mode, ...request },
      maxRetries: max_retries ?? undefined,
    }));
