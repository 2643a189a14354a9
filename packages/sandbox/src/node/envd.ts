// What the node says to envd: its identity, signed, as soon as envd answers.
import { createHash, type KeyObject, sign } from "node:crypto";
import { request } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";

export const ENVD_PORT = 49983;
const POLL_MS = 3;
/** While the network stack inside takes over, a SYN may be lost; its retransmission would cost a second. */
const ATTEMPT_MS = 50;
const CALL_MS = 5_000;

/** Members that are absent stay as they are inside. */
export type Identity = {
  readonly sandboxId: string;
  /** Empty: insecure. */
  readonly accessToken?: string;
  readonly envVars?: Readonly<Record<string, string>>;
  readonly defaultUser?: string;
  readonly defaultWorkdir?: string;
  readonly hostname?: string;
  /** RFC 3339. */
  readonly timestamp?: string;
};

/** Waits until envd answers /health. @throws SANDBOX_START_FAILED after `boundMs`, or when `isAlive` says no. */
export async function untilHealthy(handle: RuntimeHandle, boundMs: number, isAlive: () => boolean): Promise<void> {
  const end = performance.now() + boundMs;
  let last = "no answer";
  while (performance.now() < end) {
    try {
      const status = await httpCall(handle, "GET", "/health", {}, undefined, Math.min(ATTEMPT_MS, end - performance.now()));
      if (status.code === 204) return;
      last = `/health answered ${status.code}`;
    } catch (error) {
      last = (error as Error).message;
    }
    if (!isAlive()) throw new Failure("SANDBOX_START_FAILED", `the sandbox died before envd answered (${last})`);
    await sleep(POLL_MS);
  }
  throw new Failure("SANDBOX_START_FAILED", `envd did not answer within ${boundMs} ms (${last})`);
}

let lastNonce = 0n;

/** Tells envd who it is (POST /init). @throws SANDBOX_START_FAILED when envd refuses or does not answer. */
export async function sendIdentity(handle: RuntimeHandle, identity: Identity, privateKey: KeyObject): Promise<void> {
  const body = JSON.stringify(identity);
  // Nanoseconds of wall time, but always rising: envd takes no nonce twice, also after a clock step within this process.
  const now = BigInt(Date.now()) * 1_000_000n;
  lastNonce = now > lastNonce ? now : lastNonce + 1n;
  const nonce = String(lastNonce);
  const digest = createHash("sha256").update(body).digest("hex");
  const signature = sign(null, Buffer.from(`svc-init\n${nonce}\n${digest}`), privateKey).toString("base64");
  const headers = { "content-type": "application/json", "x-svc-init-nonce": nonce, "x-svc-init-signature": signature };
  let answer: { code: number; body: string };
  try {
    answer = await httpCall(handle, "POST", "/init", headers, body, CALL_MS);
  } catch (error) {
    throw new Failure("SANDBOX_START_FAILED", `envd did not take its identity: ${(error as Error).message}`, { cause: error });
  }
  if (answer.code !== 204) throw new Failure("SANDBOX_START_FAILED", `envd refused its identity: HTTP ${answer.code} ${answer.body}`);
}

function httpCall(handle: RuntimeHandle, method: string, path: string, headers: Record<string, string>, body: string | undefined, boundMs: number) {
  const where = handle.endpoint.kind === "tcp" ? { host: handle.endpoint.host, port: ENVD_PORT } : { socketPath: handle.endpoint.path };
  return new Promise<{ code: number; body: string }>((resolve, reject) => {
    const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
    const call = request({ ...where, method, path, headers: { ...headers, ...length, connection: "close" }, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("end", () => {
        clearTimeout(timer);
        resolve({ code: response.statusCode ?? 0, body: Buffer.concat(chunks).toString("utf8").slice(0, 500) });
      });
      response.once("error", reject);
    });
    const timer = setTimeout(() => call.destroy(new Error(`no answer within ${Math.round(boundMs)} ms`)), boundMs);
    call.once("error", (error) => {
      clearTimeout(timer);
      reject(error);
    });
    call.end(body);
  });
}
