// Volumes: directories that outlive sandboxes and that several sandboxes mount at once, in E2B's form.
import { z } from "zod";
import { operation } from "./operation.ts";

export const MAX_VOLUME_MOUNTS = 16;
export const MAX_VOLUME_NAME = 128;

export const volumeName = z
  .string()
  .min(1)
  .max(MAX_VOLUME_NAME)
  .regex(/^[a-zA-Z0-9_-]+$/, "a volume's name is letters, digits, '-' and '_'");

/** System directories, in which a mount would break the sandbox. */
const taken = ["/proc", "/sys", "/dev", "/.svc", "/run"];

const mountPath = z
  .string()
  .max(1024)
  .refine((path) => /^(\/[^/\0]+)+$/.test(path) && !path.split("/").some((part) => part === "." || part === ".."), "expected an absolute path such as /data")
  .refine((path) => !taken.some((each) => path === each || path.startsWith(`${each}/`)), `a volume cannot be mounted below ${taken.join(", ")}`);

export const volumeMount = z.object({ name: volumeName, path: mountPath });
export type VolumeMount = z.output<typeof volumeMount>;

export const volumeMounts = z
  .array(volumeMount)
  .max(MAX_VOLUME_MOUNTS)
  .superRefine((mounts, context) => {
    mounts.forEach(({ path }, at) => {
      const other = mounts.slice(0, at).find((each) => each.path === path || each.path.startsWith(`${path}/`) || path.startsWith(`${each.path}/`));
      if (other !== undefined) context.addIssue({ code: "custom", path: [at, "path"], message: `'${path}' and '${other.path}' overlap; mount each elsewhere` });
    });
  })
  .describe("Volumes to mount, each by its name at a path");

const volumeFields = {
  volumeID: z.string(),
  name: z.string(),
  sizeMB: z.number().int().describe("Its quota in MiB"),
  usedBytes: z.number().int().describe("What its files take"),
  createdAt: z.string(),
  nodeID: z.string().optional().describe("The node that has it; absent if every node reaches it"),
  tenant: z.string().optional().describe("The tenant that it belongs to; absent for the deployment's own"),
  sandboxIDs: z.array(z.string()).describe("The running and paused sandboxes that mount it"),
};

export const volume = z.object(volumeFields);
export type Volume = z.output<typeof volume>;
export const volumeAndToken = volume.extend({
  token: z.string().describe("Opens the volume's content: Authorization: Bearer TOKEN"),
  domain: z.string().optional(),
});

const volumeID = z.string().min(1).max(MAX_VOLUME_NAME).describe("Its id, or its name in the tenant of the key that asks");

export const createVolume = operation({
  name: "createVolume",
  method: "POST",
  path: "/volumes",
  summary: "Makes an empty volume",
  input: z.object({
    name: volumeName,
    sizeMB: z
      .int()
      .min(1)
      .max(1 << 24)
      .nullish()
      .describe("Its quota in MiB, up to volumes.max_size_mb; absent: volumes.size_mb"),
  }),
  output: volumeAndToken,
  success: 201,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "VOLUME_EXISTS", "TOO_MANY_REQUESTS", "QUOTA_EXCEEDED", "DISK_FULL", "HOST_UNSUITABLE"],
});

export const listVolumes = operation({
  name: "listVolumes",
  method: "GET",
  path: "/volumes",
  summary: "Lists the volumes, by name",
  input: z.object({}),
  output: z.array(volume),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED"],
});

export const getVolume = operation({
  name: "getVolume",
  method: "GET",
  path: "/volumes/{volumeID}",
  summary: "One volume with the token of its content, by id or name",
  input: z.object({ volumeID }),
  output: volumeAndToken,
  success: 200,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "VOLUME_NOT_FOUND"],
});

export const deleteVolume = operation({
  name: "deleteVolume",
  method: "DELETE",
  path: "/volumes/{volumeID}",
  summary: "Deletes a volume with all its files, unless a sandbox mounts it",
  input: z.object({ volumeID }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: ["INVALID_REQUEST", "UNAUTHENTICATED", "VOLUME_NOT_FOUND", "VOLUME_IN_USE"],
});

export const volumeOperations = { createVolume, listVolumes, getVolume, deleteVolume } as const;

/** The prefix of the routes of a volume's content, which need the volume's token instead of the API key. */
export const VOLUME_CONTENT = "/volumecontent";

export const volumeStat = z.object({
  name: z.string(),
  type: z.enum(["unknown", "file", "directory", "symlink"]),
  path: z.string(),
  size: z.number().int(),
  mode: z.number().int(),
  uid: z.number().int(),
  gid: z.number().int(),
  atime: z.string(),
  mtime: z.string(),
  ctime: z.string(),
  target: z.string().optional(),
});
export type VolumeStat = z.output<typeof volumeStat>;

const id = z.coerce.number().int().min(0).max(0xffff_fffe);
const mode = z.coerce.number().int().min(0).max(0o7777);

/** The query of every route of a volume's content. */
export const volumeContentQuery = z.object({
  path: z.string().min(1).max(4096),
  depth: z.coerce.number().int().min(1).max(100).default(1),
  uid: id.optional(),
  gid: id.optional(),
  mode: mode.optional(),
  force: z
    .enum(["true", "false", "True", "False"])
    .default("false")
    .transform((text) => text.toLowerCase() === "true"),
});
export const volumeMetadata = z.object({ uid: id.optional(), gid: id.optional(), mode: mode.optional() });
export type VolumeMetadata = z.output<typeof volumeMetadata>;
