// Installs a pinned release of an E2B SDK, and drives a node with it: by URLs, or by a domain behind nginx with TLS as docs/sdks.md shows it.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { endWithUs } from "./children.ts";
import type { TestNode } from "./node.ts";
import { freePorts } from "./ports.ts";
import type { Release } from "./sdk-releases.ts";
import { endProcess } from "./server-process.ts";
import { until } from "./until.ts";

export const sdkSteps = ["create", "commands", "files", "list", "is_running", "connect", "pause", "resume", "fork", "template", "kill"] as const;
export type SdkStep = (typeof sdkSteps)[number];
/** Results by step: `yes`, `absent` where the release has no such call, or the error. */
export type Said = Partial<Record<SdkStep, string>>;

const INSTALL_MS = 600_000;
const DRIVE_MS = 300_000;
const pythonDrive = fileURLToPath(new URL("../test/sdks_drive.py", import.meta.url));
const javascriptDrive = fileURLToPath(new URL("../test/sdks-drive.ts", import.meta.url));
const guide = fileURLToPath(new URL("../../../docs/sdks.md", import.meta.url));

/** The folder of the release, from the cache or from its package index. */
export async function installSdk({ language, version }: Release): Promise<string> {
  const all = join(process.env["SVC_CACHE"] ?? tmpdir(), "sdk-releases", language);
  const folder = join(all, version);
  if (existsSync(folder)) return folder;
  mkdirSync(all, { recursive: true });
  const making = mkdtempSync(join(all, `.${version}-`));
  try {
    if (language === "python") {
      const quiet = ["--quiet", "--disable-pip-version-check", "--no-compile", "--target", making];
      await run("python3", ["-m", "pip", "install", ...quiet, `e2b==${version}`], { ...process.env, PIP_USER: "0" }, INSTALL_MS, making);
    } else {
      writeFileSync(join(making, "package.json"), '{ "private": true }\n');
      const quiet = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
      await run("npm", ["install", ...quiet, `e2b@${version}`], process.env, INSTALL_MS, making);
    }
    if (!existsSync(folder)) renameSync(making, folder);
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
  return folder;
}

export type TlsFront = AsyncDisposable & {
  /** With its port, for E2B_DOMAIN and the node's proxy.domains. */
  readonly domain: string;
  readonly authority: string;
  /** Passes on to this node, from now on. */
  frontOf(node: Pick<TestNode, "port">): Promise<void>;
};

/** The configuration of the guide, with a domain and ports of this test: `*.sdks.test` is resolved inside the programs that are driven. */
export async function openTlsFront(): Promise<TlsFront> {
  const folder = mkdtempSync(join(tmpdir(), "svc-sdks-tls-"));
  const [port = 0] = await freePorts(1);
  const authority = join(folder, "authority.pem");
  await certify(folder, authority);
  let nginx: ReturnType<typeof spawn> | undefined;
  return {
    domain: `sdks.test:${port}`,
    authority,
    async frontOf(node) {
      const config = join(folder, "nginx.conf");
      writeFileSync(config, configOf(folder, port, node.port));
      const child = spawn("nginx", ["-c", config, "-e", "stderr"], { stdio: ["ignore", "ignore", "inherit"] });
      nginx = child;
      endWithUs(child);
      await until("nginx", () => {
        if (child.exitCode !== null) throw new Error(`nginx ended with ${child.exitCode}`);
        return accepts(port);
      });
    },
    async [Symbol.asyncDispose]() {
      if (nginx !== undefined) await endProcess(nginx, "SIGTERM");
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function configOf(folder: string, port: number, nodePort: number): string {
  const block = /```nginx\n([\s\S]*?)```/.exec(readFileSync(guide, "utf8"))?.[1];
  if (block === undefined) throw new Error("docs/sdks.md has no block of nginx");
  const http = block
    .replaceAll("svc.example.com", "sdks.test")
    .replace("listen 443 ssl", `listen 127.0.0.1:${port} ssl`)
    .replace("127.0.0.1:8000", `127.0.0.1:${nodePort}`)
    .replace(/ssl_certificate \S+;/, `ssl_certificate ${folder}/server.pem;`)
    .replace(/ssl_certificate_key \S+;/, `ssl_certificate_key ${folder}/server.key;`);
  const own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${folder}/${name};`).join(" ");
  return `daemon off; pid ${folder}/nginx.pid; worker_processes 1; events {}\nhttp { access_log off; ${own}\n${http}\n}\n`;
}

async function certify(folder: string, authority: string): Promise<void> {
  const at = (name: string) => join(folder, name);
  const openssl = (...words: string[]) => run("openssl", words, process.env, INSTALL_MS, folder);
  const key = ["-newkey", "rsa:2048", "-nodes"];
  await openssl("req", "-x509", ...key, "-days", "30", "-keyout", at("authority.key"), "-out", authority, "-subj", "/CN=svc test");
  await openssl("req", ...key, "-keyout", at("server.key"), "-out", at("server.csr"), "-subj", "/CN=sdks.test");
  writeFileSync(at("names"), "subjectAltName=DNS:sdks.test,DNS:*.sdks.test\n");
  const signed = ["-CA", authority, "-CAkey", at("authority.key"), "-CAcreateserial", "-days", "30", "-extfile", at("names")];
  await openssl("x509", "-req", "-in", at("server.csr"), ...signed, "-out", at("server.pem"));
}

/** Runs each step with a release. Its environment has the E2B variables that the guide asks users to set, and no others. */
export async function driveSdk(release: Release, node: Pick<TestNode, "url" | "apiKey">, front: TlsFront | undefined, steps = sdkSteps as readonly SdkStep[]) {
  const folder = await installSdk(release);
  const inherited = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("E2B_") && name !== "PYTHONPATH"));
  const reach =
    front === undefined
      ? { E2B_API_URL: node.url, E2B_SANDBOX_URL: release.reach === "proxy" ? `${node.url}/proxy` : node.url }
      : { E2B_DOMAIN: front.domain, SVC_TEST_CA: front.authority, SSL_CERT_FILE: front.authority, NODE_EXTRA_CA_CERTS: front.authority };
  const own = { SVC_TEST_SDK: folder, SVC_TEST_NAME: `${release.language}-${release.version.replaceAll(".", "-")}`, PYTHONDONTWRITEBYTECODE: "1" };
  const python = release.language === "python";
  const env = { ...inherited, ...reach, ...own, E2B_API_KEY: node.apiKey, ...(python ? { PYTHONPATH: folder } : {}) };
  const [program, words] = python ? ["python3", ["-W", "ignore", pythonDrive]] : [process.execPath, [javascriptDrive]];
  const out = await run(program, [...words, ...steps], env, DRIVE_MS, folder);
  return JSON.parse(out.trim().split("\n").at(-1) ?? "") as Said;
}

/** Returns what it printed on stdout. @throws with its whole output if it failed. */
async function run(program: string, words: readonly string[], env: NodeJS.ProcessEnv, timeout: number, cwd: string): Promise<string> {
  const PATH = `${dirname(process.execPath)}:${env["PATH"] ?? ""}`;
  const child = spawn(program, words, { env: { ...env, PATH }, cwd, timeout, stdio: ["ignore", "pipe", "pipe"] });
  endWithUs(child);
  let out = "";
  let said = "";
  child.stdout.on("data", (chunk: Buffer) => void (out += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => void (said += chunk.toString()));
  const code = await new Promise<number | null>((resolve, reject) => child.once("error", reject).once("close", resolve));
  if (code !== 0) throw new Error(`${program} ${words.join(" ")} ended with ${code}: ${said.slice(-3000)}${out.slice(-1000)}`);
  return out;
}

function accepts(port: number): Promise<true | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host: "127.0.0.1", port }, () => resolve(true)).once("error", () => resolve(undefined));
    socket.once("connect", () => socket.destroy());
  });
}
