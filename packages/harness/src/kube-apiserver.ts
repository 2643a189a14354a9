// A real Kubernetes API server with its own etcd, built once from its released modules; there is no kubelet and no controller.
import { spawn } from "node:child_process";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startEtcd } from "./etcd.ts";
import { builtProgram } from "./go-program.ts";
import { freePorts } from "./ports.ts";

const READY_MS = 300_000;
const LOOK_MS = 500;

export type Answer = { readonly status: number; readonly body: Record<string, unknown> };
export type KubeApiserver = AsyncDisposable & {
  /** `body` is an object to apply. */
  ask(method: "GET" | "PATCH", path: string, body?: object): Promise<Answer>;
};

export const builtApiserver = (): Promise<string> => builtProgram("kube-apiserver");

export async function startApiserver(program: string): Promise<KubeApiserver> {
  const stack = new AsyncDisposableStack();
  const etcd = stack.use(await startEtcd());
  const folder = mkdtempSync(join(tmpdir(), "svc-kube-"));
  stack.defer(() => rmSync(folder, { recursive: true, force: true }));
  const token = randomBytes(24).toString("hex");
  const keys = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const key = join(folder, "service-account.pem");
  writeFileSync(key, keys.privateKey.export({ type: "pkcs1", format: "pem" }), { mode: 0o600 });
  writeFileSync(join(folder, "tokens.csv"), `${token},tester,tester,system:masters\n`, { mode: 0o600 });
  const [port] = await freePorts(1);
  const flags = {
    "etcd-servers": etcd.endpoints.join(","),
    "bind-address": "127.0.0.1",
    "advertise-address": "127.0.0.1",
    "secure-port": port,
    "cert-dir": folder,
    "service-cluster-ip-range": "10.0.0.0/24",
    "service-account-issuer": "https://localhost",
    "service-account-key-file": key,
    "service-account-signing-key-file": key,
    "token-auth-file": join(folder, "tokens.csv"),
    "authorization-mode": "RBAC",
    "endpoint-reconciler-type": "none",
    // Every cluster with a network plug-in on its nodes sets this; the pods of our nodes need it.
    "allow-privileged": "true",
  };
  const child = spawn(
    program,
    Object.entries(flags).map(([name, value]) => `--${name}=${value}`),
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  const end = () => void child.kill("SIGKILL");
  process.once("exit", end);
  let said = "";
  child.stderr.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-20_000);
  });
  stack.defer(async () => {
    process.off("exit", end);
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    end();
    await ended;
  });

  function ask(method: string, path: string, body?: object): Promise<Answer> {
    return new Promise((resolve, reject) => {
      // JSON is also valid YAML. A request without a body may not name a content type.
      const type = body === undefined ? {} : { "content-type": "application/apply-patch+yaml" };
      const headers = { authorization: `Bearer ${token}`, accept: "application/json", ...type };
      // The server created its self-signed certificate in this folder.
      const call = request({ host: "127.0.0.1", port, method, path, headers, rejectUnauthorized: false, timeout: 30_000 }, (answer) => {
        let text = "";
        answer.setEncoding("utf8").on("data", (chunk: string) => void (text += chunk));
        answer.once("end", () => resolve({ status: answer.statusCode ?? 0, body: text.startsWith("{") ? (JSON.parse(text) as Answer["body"]) : { text } }));
      });
      call.once("error", reject).once("timeout", () => call.destroy(new Error("no answer in time")));
      call.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
  const by = performance.now() + READY_MS;
  for (;;) {
    const status = await ask("GET", "/readyz").then(
      (answer) => answer.status,
      () => 0,
    );
    if (status === 200) return { ask, [Symbol.asyncDispose]: () => stack.disposeAsync() };
    if (child.exitCode !== null || performance.now() > by) {
      await stack.disposeAsync();
      throw new Error(`the API server is not ready (${child.exitCode ?? "it runs"}): ${said.slice(-3000)}`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}
