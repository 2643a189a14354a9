// A fresh Debian root without Node, Go or compiler; each command inside runs in its own mount and pid namespace and ends with SIGKILL.
import { execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dirname, "..");
const tree = "/opt/svc";
const bundle = "/etc/ssl/certs/ca-certificates.crt";
/** The variables of the caller's environment that say how packages are reached. */
const passed = /^(https?_proxy|no_proxy|HTTPS?_PROXY|NO_PROXY|GOPROXY|GOSUMDB|GONOSUMDB|PIP_INDEX_URL|PIP_DEFAULT_TIMEOUT|NPM_CONFIG_REGISTRY)$/;

/** Runs in the namespaces, so that the mounts end with the command. It is not chroot, which forbids user namespaces. */
const enter = `set -e
mount --make-rprivate /
mount --bind "$0" "$0"
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount --rbind /dev "$0/dev"
mount -t tmpfs tmpfs "$0/run"
mkdir -p "$0/run/lock"
cd "$0"
pivot_root . mnt
umount -l /mnt
exec "$@"`;

export type Said = { readonly code: number | string; readonly output: string; readonly tookMs: number };

export type RunOptions = {
  readonly killWhen?: (output: string) => boolean;
  readonly env?: Readonly<Record<string, string>>;
  /** In a network namespace that leads nowhere. */
  readonly isOffline?: boolean;
};

export class FreshRoot implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), "svc-test-fresh-"));
  readonly root = join(this.folder, "root");

  /** `archive` is a release, which is unpacked in the root instead of this tree; `suite` is another release of Debian than the host's. */
  constructor(archive?: string, suite?: string) {
    // The root has the host's release, mirrors and settings, read by the scripts that set-up itself uses.
    const script = `source setup/mirrors.sh
      options=(); while read -r line; do options+=("--aptopt=$line"); done < <(apt_settings)
      own=$(mirror_suite) suite=\${2:-$(mirror_suite)}
      mirror_lines | sed -E "s, $own(-[a-z]+)? , $suite\\1 ," |
        mmdebstrap --mode=root --variant=minbase --dpkgopt=force-unsafe-io '--aptopt=Acquire::Languages "none"' "\${options[@]}" "$suite" "$1" -`;
    execFileSync("bash", ["-euo", "pipefail", "-c", script, "bash", this.root, suite ?? ""], { cwd: root, stdio: ["ignore", "ignore", "pipe"] });
    if (archive !== undefined) {
      this.unpack(archive, tree);
      return;
    }
    if (existsSync(bundle)) {
      mkdirSync(join(this.root, "etc/ssl/certs"), { recursive: true });
      cpSync(bundle, join(this.root, bundle), { dereference: true });
      cpSync("/usr/local/share/ca-certificates", join(this.root, "usr/local/share/ca-certificates"), { recursive: true, dereference: true });
    }
    cpSync("/etc/resolv.conf", join(this.root, "etc/resolv.conf"), { dereference: true });
    mkdirSync(join(this.root, tree), { recursive: true });
    // The copy contains what a clone would: no modules and no builds.
    const pack = 'tar -C "$1" --exclude=node_modules --exclude=.git --exclude=native/build -cf - . | tar -C "$2" -xf -';
    execFileSync("bash", ["-euo", "pipefail", "-c", pack, "bash", root, join(this.root, tree)]);
  }

  /** Unpacks a release as its users do. */
  unpack(archive: string, into: string): void {
    mkdirSync(join(this.root, into), { recursive: true });
    execFileSync("tar", ["-xf", archive, "--strip-components=1", "-C", join(this.root, into)]);
  }

  /** Runs a command in the root; `killWhen` checks its output and may end everything with SIGKILL. */
  async run(command: readonly string[], options: RunOptions = {}): Promise<Said> {
    const env: Record<string, string> = { HOME: "/root", PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", TERM: "dumb", ...options.env };
    for (const [name, value] of Object.entries(process.env)) if (value !== undefined && passed.test(name)) env[name] = value;
    const started = performance.now();
    // This is the first process of the pid namespace, so everything inside ends with it.
    const network = options.isOffline === true ? ["--net"] : [];
    const script = options.isOffline === true ? `ip link set lo up\n${enter}` : enter;
    const args = ["--mount", "--pid", ...network, "--fork", "--kill-child=KILL", "bash", "-c", script, this.root, ...command];
    const child = spawn("unshare", args, { env, stdio: ["ignore", "pipe", "pipe"], detached: true });
    const { promise, resolve } = Promise.withResolvers<Said>();
    let output = "";
    const look = options.killWhen === undefined ? undefined : setInterval(() => options.killWhen?.(output) && child.kill("SIGKILL"), 100);
    const end = () => child.kill("SIGKILL");
    process.once("exit", end);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk: string) => {
        output += chunk;
      });
    }
    child.once("close", (code, signal) => {
      clearInterval(look);
      process.off("exit", end);
      resolve({ code: code ?? signal ?? "?", output, tookMs: performance.now() - started });
    });
    return promise;
  }

  svc(...args: readonly string[]): Promise<Said> {
    return this.run([`${tree}/svc`, ...args]);
  }

  /** Runs a Python expression in gVisor on the base template, with the runsc that set-up built. */
  runInGvisor(expression: string): Promise<Said> {
    const cache = "/var/cache/svc";
    const config = {
      ociVersion: "1.0.0",
      process: { args: ["/usr/bin/python3", "-c", `print(${expression})`], cwd: "/home/user", env: ["PATH=/usr/bin:/bin"], user: { uid: 1000, gid: 1000 } },
      root: { path: `${cache}/templates/base/rootfs`, readonly: true },
      mounts: [{ destination: "/proc", type: "proc", source: "proc" }],
    };
    this.write("/opt/bundle/config.json", JSON.stringify(config));
    return this.run(["bash", "-c", `${cache}/runsc/*/runsc --root=/run/runsc --ignore-cgroups --network=none run -bundle /opt/bundle fresh-one`]);
  }

  read(file: string): string {
    return readFileSync(join(this.root, file), "utf8");
  }

  has(file: string): boolean {
    return existsSync(join(this.root, file));
  }

  write(file: string, text: string): void {
    mkdirSync(join(this.root, file, ".."), { recursive: true });
    writeFileSync(join(this.root, file), text);
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
