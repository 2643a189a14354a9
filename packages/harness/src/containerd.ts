// Builds the images of deploy/container with buildah on the template base, and runs them in a separate containerd; both leave nothing
// behind.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { TREE } from "./deploy-files.ts";
import { until } from "./until.ts";

/** Ten times what the build takes on two idle cores: it compiles the native parts, runsc and envd. */
const BUILD_MS = 4 * 3_600_000;
const CALL_MS = 10 * 60_000;
const MAX_OUTPUT_BYTES = 2 ** 28;
const BASE_IMAGE = "localhost/svc-test-debian";
/** runc's state uses this namespace, too, independently of containerd's own directories. */
const NAMESPACE = `svc-test-${process.pid}`;

const run = promisify(execFile);

export type Images = AsyncDisposable & {
  /** Builds the image of this target of the container file; returns the archive's path. */
  archive(target: string): Promise<string>;
};

export type ContainerOptions = {
  readonly image: string;
  readonly id: string;
  /** The whole command line, which replaces the image's. */
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Folders of the host, by their path in the container. */
  readonly mounts?: Readonly<Record<string, string>>;
  readonly isPrivileged?: boolean;
};

export type Containerd = AsyncDisposable & {
  /** Returns the image's name. */
  load(archive: string): Promise<string>;
  /** The container uses the host's network. */
  start(options: ContainerOptions): Promise<void>;
  running(): Promise<readonly string[]>;
  stop(id: string): Promise<void>;
  log(id: string): Promise<string>;
};

/** Needs root, buildah, tar and the template base, which replaces an image from a registry. */
export async function openImages(): Promise<Images> {
  const folder = mkdtempSync(join(tmpdir(), "svc-images-"));
  const where = ["--root", join(folder, "storage"), "--runroot", join(folder, "run")];
  const buildah = async (args: readonly string[], timeout = CALL_MS) =>
    (await run("buildah", [...where, ...args], { timeout, maxBuffer: MAX_OUTPUT_BYTES, cwd: TREE })).stdout.trim();
  const close = async () => {
    await buildah(["rm", "--all"]).catch(() => undefined);
    await buildah(["rmi", "--all", "--force"]).catch(() => undefined);
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    const base = await buildah(["from", "scratch"]);
    await buildah(["copy", "--quiet", base, join(process.env["SVC_TEMPLATES_DIR"] ?? "", "base/rootfs"), "/"]);
    await buildah(["commit", "--quiet", "--rm", base, BASE_IMAGE]);
  } catch (error) {
    await close();
    throw error;
  }
  return {
    async archive(target) {
      const file = "deploy/container/Containerfile";
      const options = ["--isolation", "chroot", "--network", "host", "--layers", "--pull-never", "--build-arg", `DEBIAN=${BASE_IMAGE}`];
      const image = `localhost/svc-${target}:test`;
      await buildah(["build", ...options, "--ignorefile", `${file}.dockerignore`, "--file", file, "--target", target, "--tag", image, "."], BUILD_MS);
      const path = join(folder, `${target}.tar`);
      await buildah(["push", "--quiet", image, `oci-archive:${path}:${image}`]);
      return path;
    },
    [Symbol.asyncDispose]: close,
  };
}

/** Needs root, containerd, ctr and runc. It ends with the test, along with all containers. */
export async function startContainerd(): Promise<Containerd> {
  const folder = mkdtempSync(join(tmpdir(), "svc-containerd-"));
  const address = join(folder, "containerd.sock");
  const settings = `version = 2\nroot = "${folder}/root"\nstate = "${folder}/state"\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "${address}"\n`;
  writeFileSync(join(folder, "config.toml"), settings);
  const logs = join(folder, "logs");
  mkdirSync(logs);
  const child = spawn("containerd", ["--config", join(folder, "config.toml")], { stdio: "ignore" });
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  const ctr = async (...args: readonly string[]) =>
    (await run("ctr", ["--address", address, "--namespace", NAMESPACE, ...args], { timeout: CALL_MS, maxBuffer: MAX_OUTPUT_BYTES })).stdout.trim();
  const listed = async (...args: readonly string[]) => (await ctr(...args, "--quiet")).split("\n").filter((line) => line !== "");
  const started = new Set<string>();

  async function stop(id: string): Promise<void> {
    started.delete(id);
    await ctr("task", "kill", "--signal", "SIGTERM", id).catch(() => undefined);
    await until(`the container ${id} stops`, async () => (/RUNNING/.test(await statusOf(id)) ? undefined : true)).catch(() =>
      ctr("task", "kill", "--all", "--signal", "SIGKILL", id),
    );
    await ctr("task", "delete", "--force", id).catch(() => undefined);
    await ctr("container", "delete", id).catch(() => undefined);
  }
  const statusOf = async (id: string) => (await ctr("task", "list")).split("\n").find((line) => line.startsWith(`${id} `)) ?? "";

  await until("containerd answers", () =>
    existsSync(address)
      ? ctr("version").then(
          () => true,
          () => undefined,
        )
      : undefined,
  );
  return {
    async load(archive) {
      const before = new Set(await listed("images", "list"));
      await ctr("images", "import", archive);
      const [image] = (await listed("images", "list")).filter((name) => !before.has(name));
      if (image === undefined) throw new Error(`${archive} holds no image`);
      return image;
    },
    async start({ image, id, args, env = {}, mounts = {}, isPrivileged = false }) {
      const mounted = Object.entries(mounts).flatMap(([target, source]) => ["--mount", `type=bind,src=${source},dst=${target},options=rbind:rw`]);
      const given = Object.entries(env).flatMap(([name, value]) => ["--env", `${name}=${value}`]);
      const way = ["--detach", "--net-host", "--log-uri", `file://${join(logs, id)}`, ...(isPrivileged ? ["--privileged"] : [])];
      started.add(id);
      await ctr("run", ...way, ...mounted, ...given, image, id, ...args);
    },
    running: async () => (await ctr("task", "list")).split("\n").flatMap((line) => (/RUNNING/.test(line) ? [line.split(/\s+/)[0] ?? ""] : [])),
    stop,
    log: async (id) => (await run("tail", ["-c", "4000", join(logs, id)])).stdout,
    async [Symbol.asyncDispose]() {
      for (const id of [...started]) await stop(id);
      process.off("exit", kill);
      const ended = once(child, "exit");
      child.kill("SIGTERM");
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
