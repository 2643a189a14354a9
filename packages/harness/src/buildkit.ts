// BuildKit from its released Go modules, which builds Dockerfiles for comparison with template builds.
import { execFile, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { builtTools } from "./go-program.ts";
import { until } from "./until.ts";

const BOUND_MS = 600_000;
const list = join(import.meta.dirname, "tar_list.py");

/** The files by path: kind, mode, owner and content. */
export type FileList = Readonly<Record<string, string>>;
export type BuiltImage = { readonly files: FileList; readonly env: readonly string[]; readonly workdir: string; readonly user: string };

export type Buildkit = AsyncDisposable & {
  /** Builds the Dockerfile of a folder; the flags are those of `svc template build`. */
  build(context: string, flags: readonly string[], env?: NodeJS.ProcessEnv): Promise<BuiltImage>;
};

export function filesOfArchive(path: string): FileList {
  return JSON.parse(execFileSync("python3", [list, path], { maxBuffer: 2 ** 26 }).toString()) as FileList;
}

/** Images without a registry in their names come from `registry`, below library/. */
export async function startBuildkit(registry: string): Promise<Buildkit> {
  const programs = await builtTools("buildkit");
  const folder = mkdtempSync(join(tmpdir(), "svc-buildkit-"));
  const address = `unix://${join(folder, "socket")}`;
  const config = `root = "${join(folder, "root")}"
[grpc]
address = ["${address}"]
[worker.oci]
enabled = true
snapshotter = "native"
networkMode = "host"
[worker.containerd]
enabled = false
[registry."docker.io"]
mirrors = ["${registry}"]
[registry."${registry}"]
http = true
`;
  writeFileSync(join(folder, "config.toml"), config);
  const child = spawn(join(programs, "buildkitd"), ["--config", join(folder, "config.toml")], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const end = () => void child.kill("SIGKILL");
  process.once("exit", end);
  const control = promisify(execFile);
  const run = (args: readonly string[], cwd = folder, env = process.env) =>
    control(join(programs, "buildctl"), ["--addr", address, ...args], { timeout: BOUND_MS, maxBuffer: 2 ** 26, cwd, env });
  await until("BuildKit answers", async () => {
    if (child.exitCode !== null) throw new Error(`buildkitd ended: ${said}`);
    return run(["debug", "workers"]).then(
      () => true,
      () => undefined,
    );
  });
  let builds = 0;

  return {
    async build(context, flags, env) {
      const out = join(folder, `build-${builds++}`);
      mkdirSync(out);
      const source = ["--frontend=dockerfile.v0", `--local=context=${context}`, `--local=dockerfile=${context}`];
      const outputs = [`--output=type=tar,dest=${out}/files.tar`, `--output=type=oci,tar=false,dest=${out}/image`];
      await run(["build", "--progress=plain", ...source, ...optionsOf(flags), ...outputs], context, env);
      return { files: filesOfArchive(join(out, "files.tar")), ...configOf(join(out, "image")) };
    },
    async [Symbol.asyncDispose]() {
      process.off("exit", end);
      const ended = new Promise((resolve) => child.once("exit", resolve));
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGTERM");
        await ended;
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function optionsOf(flags: readonly string[]): string[] {
  const options: string[] = [];
  for (let at = 0; at < flags.length; at += 2) {
    const [flag = "", value = ""] = flags.slice(at, at + 2);
    if (flag === "--secret") options.push("--secret", value);
    else options.push("--opt", flag === "--target" ? `target=${value}` : `build-arg:${value}`);
  }
  return options;
}

function configOf(image: string): Omit<BuiltImage, "files"> {
  const blob = (digest: string) => JSON.parse(readFileSync(join(image, "blobs", digest.replace(":", "/")), "utf8")) as unknown;
  const index = JSON.parse(readFileSync(join(image, "index.json"), "utf8")) as { manifests: readonly { digest: string }[] };
  const manifest = blob(index.manifests[0]?.digest ?? "") as { config: { digest: string } };
  const { config } = blob(manifest.config.digest) as { config: { Env?: string[]; WorkingDir?: string; User?: string } };
  return { env: config.Env ?? [], workdir: config.WorkingDir ?? "", user: config.User ?? "" };
}
