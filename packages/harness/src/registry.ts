// A real image registry on loopback, with an optional password, and small images pushed to it.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePorts } from "./ports.ts";
import { until } from "./until.ts";

export const registryUser = "tester";
export const registryPassword = "open-sesame";
/** The bcrypt hash of the password, which is the only format that the registry accepts. */
const passwordHash = "$2b$04$RWmTGBcYtpf1KcPF4moZ.uy7HIRsjEYUVqt14k6B.Hg8uObE1XS46";

export type ImageOptions = {
  readonly name: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly workdir?: string;
  readonly user?: string;
  readonly entrypoint?: readonly string[];
  readonly cmd?: readonly string[];
  /** The contents of files, by path. */
  readonly files?: Readonly<Record<string, string>>;
};

export type Registry = AsyncDisposable & {
  /** 127.0.0.1:PORT */
  readonly host: string;
  /** Pushes an image with a static busybox and the files; returns its full name. */
  push(options: ImageOptions): string;
};

/** Needs docker-registry, skopeo, umoci and a static busybox. It ends with this process. */
export async function startRegistry(options: { readonly password?: boolean } = {}): Promise<Registry> {
  const folder = mkdtempSync(join(tmpdir(), "svc-registry-"));
  const [port = 0] = await freePorts(1);
  const host = `127.0.0.1:${port}`;
  const secured = options.password === true;
  writeFileSync(join(folder, "htpasswd"), `${registryUser}:${passwordHash}\n`);
  const auth = secured ? `auth: { htpasswd: { realm: test, path: ${join(folder, "htpasswd")} } }\n` : "";
  const config = `version: 0.1\nlog: { level: error, accesslog: { disabled: true } }\nstorage: { filesystem: { rootdirectory: ${join(folder, "data")} } }\nhttp: { addr: "${host}" }\n${auth}`;
  writeFileSync(join(folder, "config.yml"), config);
  const child = spawn("docker-registry", ["serve", join(folder, "config.yml")], { stdio: "ignore" });
  const end = () => void child.kill("SIGKILL");
  process.once("exit", end);
  await until("the registry to answer", () => answers(host, child));
  let images = 0;

  return {
    host,
    push({ name, env = {}, workdir, user, entrypoint = [], cmd = [], files = {} }) {
      const imageFolder = join(folder, `image-${images++}`);
      const root = join(imageFolder, "rootfs");
      for (const each of ["bin", "etc", "tmp", "usr/bin", "usr/sbin", "sbin"]) mkdirSync(join(root, each), { recursive: true });
      execFileSync("cp", ["/bin/busybox", join(root, "bin/busybox")]);
      execFileSync("chroot", [root, "/bin/busybox", "--install", "-s", "/bin"]);
      for (const [path, content] of Object.entries(files)) {
        mkdirSync(join(root, path, ".."), { recursive: true });
        writeFileSync(join(root, path), content);
      }
      const layout = join(imageFolder, "layout");
      const image = `${layout}:image`;
      execFileSync("umoci", ["init", "--layout", layout]);
      execFileSync("umoci", ["new", "--image", image]);
      execFileSync("umoci", ["insert", "--image", image, root, "/"]);
      const settings = [
        ...Object.entries(env).map(([key, value]) => `--config.env=${key}=${value}`),
        ...(workdir === undefined ? [] : [`--config.workingdir=${workdir}`]),
        ...(user === undefined ? [] : [`--config.user=${user}`]),
        ...entrypoint.map((word) => `--config.entrypoint=${word}`),
        ...cmd.map((word) => `--config.cmd=${word}`),
      ];
      if (settings.length > 0) execFileSync("umoci", ["config", "--image", image, ...settings]);
      const credentials = secured ? ["--dest-creds", `${registryUser}:${registryPassword}`] : [];
      execFileSync("skopeo", ["--insecure-policy", "copy", "--quiet", "--dest-tls-verify=false", ...credentials, `oci:${image}`, `docker://${host}/${name}`]);
      return `${host}/${name}`;
    },
    async [Symbol.asyncDispose]() {
      process.off("exit", end);
      const ended = new Promise((resolve) => child.once("exit", resolve));
      if (child.exitCode === null && child.signalCode === null) {
        child.kill("SIGKILL");
        await ended;
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

async function answers(host: string, child: ChildProcess): Promise<true | undefined> {
  if (child.exitCode !== null) throw new Error(`docker-registry ended with ${child.exitCode}`);
  return fetch(`http://${host}/v2/`).then(
    () => true,
    () => undefined,
  );
}
