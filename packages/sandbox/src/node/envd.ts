// What the node says to envd: its identity, signed, as soon as envd answers.
import { createHash, type KeyObject, sign } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { askGuest, type GuestAnswer, type GuestRequest } from "../runtime/ask-guest.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";

const POLL_MS = 3;
/** While the network stack inside takes over, a SYN may be lost; its retransmission would cost a second. */
const ATTEMPT_MS = 50;
const LONGEST_ATTEMPT_MS = 2_000;
const CALL_MS = 5_000;
/** envd's answers to these calls are empty, or a sentence. */
const MAX_ANSWER_BYTES = 64 * 1024;
const MAX_SENTENCE_CHARS = 500;
/** A hook's failure comes with its last words. */
const MAX_HOOK_CHARS = 8_192;
/** Of an enveloped message: a byte of flags and four of length. */
const CONNECT_HEAD_BYTES = 5;
const NONCE_HEADER = "x-svc-init-nonce";

/** Members that are absent stay as they are inside. */
export type Identity = {
  readonly sandboxId: string;
  /** Empty: insecure. */
  readonly accessToken?: string;
  readonly envVars?: Readonly<Record<string, string>>;
  readonly defaultUser?: string;
  readonly defaultWorkdir?: string;
  /** Files are reached with their user's rights alone. */
  readonly strictFiles?: boolean;
  readonly hostname?: string;
  /** 32 hexadecimal digits. */
  readonly machineId?: string;
  /** Address of the resolver. */
  readonly nameserver?: string;
  /** Base64; mixed into the kernel's randomness. */
  readonly entropy?: string;
  /** RFC 3339. */
  readonly timestamp?: string;
  /** Another after each start from a capture; programs inside can watch it. */
  readonly generation?: string;
  /** This is a copy: its template's hooks run, and have this long. */
  readonly onCopyMs?: number;
};

/** Waits until envd answers /health. @throws SANDBOX_START_FAILED after `boundMs`, or when `isAlive` says no. */
export async function untilHealthy(handle: RuntimeHandle, boundMs: number, isAlive: () => boolean): Promise<void> {
  const end = performance.now() + boundMs;
  let last = "no answer";
  let attemptMs = ATTEMPT_MS;
  while (performance.now() < end) {
    const begun = performance.now();
    try {
      const status = await ask(handle, { method: "GET", path: "/health", boundMs: Math.min(attemptMs, end - performance.now()) });
      if (status.code === 204) return;
      last = `/health answered ${status.code}`;
    } catch (error) {
      last = (error as Error).message;
    }
    // Where a host is so busy that no answer comes in time, later attempts wait longer for theirs.
    if (performance.now() - begun >= attemptMs) attemptMs = Math.min(attemptMs * 1.5, LONGEST_ATTEMPT_MS);
    if (!isAlive()) throw new Failure("SANDBOX_START_FAILED", `the sandbox died before envd answered (${last})`);
    await sleep(POLL_MS);
  }
  throw new Failure("SANDBOX_START_FAILED", `envd did not answer within ${boundMs} ms (${last})`);
}

/**
 * Runs a login shell that does nothing, so that its files and libraries are known inside before a client's first command.
 * Only before the identity is sent: envd asks for no token yet. A failure is no reason to refuse the sandbox.
 */
export async function warmShell(handle: RuntimeHandle): Promise<void> {
  const message = Buffer.from(JSON.stringify({ process: { cmd: "/bin/bash", args: ["-l", "-c", "true"] }, stdin: false }));
  const envelope = Buffer.alloc(CONNECT_HEAD_BYTES);
  envelope.writeUInt32BE(message.length, 1);
  const headers = { "content-type": "application/connect+json", "connect-protocol-version": "1", "connect-timeout-ms": String(CALL_MS) };
  const body = Buffer.concat([envelope, message]);
  await ask(handle, { method: "POST", path: "/process.Process/Start", headers, body, boundMs: CALL_MS }).catch(() => undefined);
}

let lastNonce = 0n;

/**
 * Tells envd who it is (POST /init). @throws SANDBOX_START_FAILED when envd refuses or does not answer.
 * The nonce is the wall clock in nanoseconds; where that was set back, envd's refusal names the last one it took.
 */
export async function sendIdentity(handle: RuntimeHandle, identity: Identity, privateKey: KeyObject): Promise<void> {
  const body = JSON.stringify(identity);
  const boundMs = CALL_MS + (identity.onCopyMs ?? 0);
  const send = (nonce: string) => signedInit(handle, body, nonce, privateKey, boundMs);
  let answer = await send(nextNonce(BigInt(Date.now()) * 1_000_000n));
  const known = String(answer.headers[NONCE_HEADER] ?? "");
  if (answer.code === 401 && /^\d{1,20}$/.test(known)) answer = await send(nextNonce(BigInt(known) + 1n));
  if (answer.code === 204) return;
  const said = answer.body.toString("utf8");
  throw new Failure("SANDBOX_START_FAILED", hookWords(said) ?? `envd refused its identity: HTTP ${answer.code} ${said.slice(0, MAX_SENTENCE_CHARS)}`);
}

/** What a hook of the template's said that failed. */
function hookWords(body: string): string | undefined {
  try {
    const { message } = JSON.parse(body) as { message?: unknown };
    return typeof message === "string" && message.startsWith("on copy: ") ? message.slice(0, MAX_HOOK_CHARS) : undefined;
  } catch {
    return undefined;
  }
}

function nextNonce(atLeast: bigint): string {
  lastNonce = atLeast > lastNonce ? atLeast : lastNonce + 1n;
  return String(lastNonce);
}

async function signedInit(handle: RuntimeHandle, body: string, nonce: string, privateKey: KeyObject, boundMs: number): Promise<GuestAnswer> {
  const digest = createHash("sha256").update(body).digest("hex");
  const signature = sign(null, Buffer.from(`svc-init\n${nonce}\n${digest}`), privateKey).toString("base64");
  const headers = { "content-type": "application/json", [NONCE_HEADER]: nonce, "x-svc-init-signature": signature };
  try {
    return await ask(handle, { method: "POST", path: "/init", headers, body, boundMs });
  } catch (error) {
    throw new Failure("SANDBOX_START_FAILED", `envd did not take its identity: ${(error as Error).message}`, { cause: error });
  }
}

function ask(handle: RuntimeHandle, call: Omit<GuestRequest, "maxBytes">): Promise<GuestAnswer> {
  return askGuest(handle, { ...call, maxBytes: MAX_ANSWER_BYTES });
}
