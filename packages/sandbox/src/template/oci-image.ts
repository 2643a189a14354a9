// OCI images: fetched by skopeo, unpacked by umoci into a layer, and prepared for envd by a step in a sandbox.
import { randomBytes } from "node:crypto";
import { lstat, mkdir, readdir, rename, rm, rmdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { z } from "zod";
import { lookForProgram } from "../runtime/programs.ts";
import { runInto } from "./bounded-folder.ts";
import type { Startup } from "./build-record.ts";
import { hold, type Job, layered, leftMs, type Source, say } from "./builder.ts";
import { type ImageName, imageName } from "./image-name.ts";
import { prepare } from "./prepare.ts";
import { withAuthFile } from "./registry-auth.ts";

// $SVC_HOME/oci/<random>/   one image's blobs while it is unpacked; deleted afterwards, since only its layer is used

const imageConfig = z.object({
  architecture: z.string().optional(),
  config: z
    .object({
      Env: z.array(z.string()).nullish(),
      WorkingDir: z.string().nullish(),
      User: z.string().nullish(),
      Entrypoint: z.array(z.string()).nullish(),
      Cmd: z.array(z.string()).nullish(),
    })
    .nullish(),
});
type ImageConfig = z.output<typeof imageConfig>;

/** The default sizes; `diskSizeMB` is the space for a sandbox's own writes and does not count the root. */
const defaultSizes = { cpuCount: 2, memoryMB: 1024, diskSizeMB: 4096 };
const architectures: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

export async function imageSource(job: Job, asked: string): Promise<Source> {
  const { builder } = job;
  const name = imageName(asked, builder.settings);
  for (const program of ["skopeo", "umoci"]) {
    if ((await lookForProgram(program)) === undefined) {
      fail("HOST_UNSUITABLE", `fromImage needs the program ${program}; run ./svc setup, or as root: apt-get install --no-install-recommends skopeo umoci`);
    }
  }
  say(job, `FROM ${name.full}`);
  return withAuthFile(job, name.host, async (authFile) => {
    const skopeo = (args: readonly string[]) => ["skopeo", "--override-os=linux", `--override-arch=${architectures[process.arch] ?? process.arch}`, ...args];
    const access = [...(authFile === undefined ? ["--no-creds"] : ["--authfile", authFile])];
    const tls = (flag: string) => (name.insecure ? [`--${flag}=false`] : []);
    // A repository may have thousands of tags, and listing them takes a request per page.
    const ask = (args: readonly string[]) =>
      run(job, name, skopeo(["inspect", "--no-tags", ...access, ...tls("tls-verify"), ...args, `docker://${name.full}`]));
    const digest = (await ask(["--format", "{{.Digest}}"])).trim();
    const config = imageConfig.parse(JSON.parse(await ask(["--config"])));
    const layerID = await unpacked(job, name, digest, async (layout) => {
      // `skopeo copy` has other flags for credentials than `skopeo inspect`.
      const from = [...(authFile === undefined ? ["--src-no-creds"] : ["--src-authfile", authFile]), ...tls("src-tls-verify")];
      const source = `docker://${name.full.split("@")[0]?.replace(/:[^/:]+$/, "")}@${digest}`;
      await run(job, name, skopeo(["copy", "--quiet", ...from, source, `oci:${layout}:image`]), dirname(layout));
    });
    const source = sourceOf(config, builder.settings.image_start_command);
    const prepared = await prepare(job, { base: undefined, layers: [layerID] }, layered);
    return { ...source, chain: prepared };
  });
}

/** Returns the layer with the image's complete root, made once for each digest. */
async function unpacked(job: Job, name: ImageName, digest: string, fetch: (layout: string) => Promise<void>): Promise<string> {
  const { cache, layers, home } = job.builder;
  const key = `image:${digest}:${process.arch}`;
  const known = job.build.spec?.force === true ? undefined : cache.find(key)?.layerID;
  if (known != null && layers.info(known) !== undefined) {
    say(job, `${digest} (cached)`);
    cache.touch(key);
    hold(job, known);
    return known;
  }
  const work = join(home, "oci", randomBytes(8).toString("hex"));
  try {
    await mkdir(work, { recursive: true, mode: 0o700 });
    await fetch(join(work, "layout"));
    say(job, `${digest}: unpacking`);
    const layer = await layers.add(`${name.full} ${digest}`, async (diff) => {
      // umoci resolves every path below the root itself and never follows a link from the image.
      await run(job, name, ["umoci", "raw", "unpack", "--image", `${join(work, "layout")}:image`, join(work, "rootfs")], work);
      await moveInto(join(work, "rootfs"), diff);
      // A device from an image could name a device of the host; sandboxes have their own /dev.
      await job.builder.spawner.check(["find", diff, "-xdev", "(", "-type", "b", "-o", "-type", "c", ")", "-delete"], { timeoutMs: leftMs(job) });
      await knowRoot(diff);
    });
    if (layer === undefined) fail("INVALID_REQUEST", `the image ${name.full} is empty`);
    hold(job, layer.layerID);
    cache.keep(key, layer.layerID);
    return layer.layerID;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

async function moveInto(from: string, diff: string): Promise<void> {
  for (const entry of await readdir(from)) await rename(join(from, entry), join(diff, entry));
  await rmdir(from);
}

/** envd acts only for users of /etc/passwd, which an image of a single program may lack. Links from the image are not followed. */
async function knowRoot(diff: string): Promise<void> {
  const etc = join(diff, "etc");
  await mkdir(etc, { mode: 0o755 }).catch(() => undefined);
  if (!(await lstat(etc)).isDirectory()) fail("INVALID_REQUEST", "the image's /etc is not a folder");
  await writeFile(join(etc, "passwd"), "root:x:0:0:root:/root:/bin/sh\n", { flag: "wx", mode: 0o644 }).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "EEXIST") throw error;
  });
}

/** Runs a program and reports its failure as the registry's message. `into` is the folder that it fills. */
async function run(job: Job, name: ImageName, argv: readonly string[], into?: string): Promise<string> {
  const { spawner, settings } = job.builder;
  const running = into === undefined ? spawner.run(argv, { timeoutMs: leftMs(job) }) : runInto(spawner, into, settings.image_mb, argv, leftMs(job));
  const result = await running.catch((error: unknown) => {
    throw asFailure(error);
  });
  job.signal.throwIfAborted();
  if (result === undefined) {
    fail(
      "PAYLOAD_TOO_LARGE",
      `fromImage: ${name.full} takes more than the ${settings.image_mb} MB that template.image_mb allows an image, compressed and unpacked`,
    );
  }
  if (result.code === 0) return result.stdout;
  const said = /msg="((?:[^"\\]|\\.)*)"/.exec(result.stderr)?.[1]?.replace(/\\"/g, '"') ?? result.stderr.trim().split("\n").slice(-2).join(" ");
  const hint = /http: server gave HTTP response to HTTPS client/i.test(said)
    ? `; if ${name.host} speaks plain HTTP, name it in template.insecure_registries`
    : "";
  throw new Failure("INVALID_REQUEST", `fromImage: ${name.full}: ${said.slice(-800)}${hint}`);
}

function sourceOf({ config }: ImageConfig, runsCommand: boolean): Omit<Source, "chain"> {
  const env: Record<string, string> = {};
  for (const entry of config?.Env ?? []) {
    const at = entry.indexOf("=");
    if (at > 0) env[entry.slice(0, at)] = entry.slice(at + 1);
  }
  const command = [...(config?.Entrypoint ?? []), ...(config?.Cmd ?? [])];
  const startup: Startup | undefined = runsCommand && command.length > 0 ? { startCmd: command.map(quoted).join(" "), readyCmd: undefined } : undefined;
  return {
    env,
    // An image without a user means root, but clients' commands expect `user`, as in every template.
    user: (config?.User ?? "").split(":")[0] || "user",
    workdir: config?.WorkingDir || "/home/user",
    names: { user: Boolean(config?.User), workdir: Boolean(config?.WorkingDir) },
    sizes: defaultSizes,
    startup,
  };
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
