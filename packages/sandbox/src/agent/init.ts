// Sends envd its identity (POST /init), signed, so that no code in the sandbox can act as the node (I8).
import { createHash, type KeyObject, sign } from "node:crypto";
import { Failure } from "@svc/contract/failures.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import type { InitKeys } from "./init-keys.ts";
import { type AgentAnswer, requestAgent } from "./request.ts";

const CALL_MS = 5_000;
/** envd's answer is empty or one sentence. */
const MAX_ANSWER_BYTES = 64 * 1024;
const MAX_SENTENCE_CHARS = 500;
/** A hook's failure includes the end of its output. */
const MAX_HOOK_CHARS = 8_192;
const NONCE_HEADER = "x-svc-init-nonce";

/** Absent members leave envd's present values unchanged. */
export type Identity = {
  readonly sandboxId: string;
  /** Empty: requests to envd need no token. */
  readonly accessToken?: string;
  readonly envVars?: Readonly<Record<string, string>>;
  readonly defaultUser?: string;
  readonly defaultWorkdir?: string;
  /** The file API uses only its user's permissions. */
  readonly strictFiles?: boolean;
  readonly hostname?: string;
  /** 32 hexadecimal digits. */
  readonly machineId?: string;
  /** The address of the DNS server. */
  readonly nameserver?: string;
  /** Base64; mixed into the kernel's randomness. */
  readonly entropy?: string;
  /** RFC 3339. */
  readonly timestamp?: string;
  /** New after each start from a checkpoint; programs inside can watch it. */
  readonly generation?: string;
  /** Present for a copy: the template's hooks run, within this time. */
  readonly onCopyMs?: number;
};

/** `initKey`: the key its envd was started under. @throws SANDBOX_START_FAILED when envd refuses or does not answer. */
export type SendIdentity = (handle: RuntimeHandle, initKey: string | undefined, identity: Identity) => Promise<void>;

/** Uses the wall clock in nanoseconds as nonce; if the clock was set back, envd's refusal contains the last nonce it accepted (I8). */
export function openInit(keys: Pick<InitKeys, "signer">): SendIdentity {
  let lastNonce = 0n;
  function nextNonce(atLeast: bigint): string {
    lastNonce = atLeast > lastNonce ? atLeast : lastNonce + 1n;
    return String(lastNonce);
  }

  return async (handle, initKey, identity) => {
    const privateKey = keys.signer(initKey);
    const body = JSON.stringify(identity);
    const boundMs = CALL_MS + (identity.onCopyMs ?? 0);
    const send = (nonce: string) => signedInit(handle, body, nonce, privateKey, boundMs);
    let answer = await send(nextNonce(BigInt(Date.now()) * 1_000_000n));
    const known = String(answer.headers[NONCE_HEADER] ?? "");
    if (answer.code === 401 && /^\d{1,20}$/.test(known)) answer = await send(nextNonce(BigInt(known) + 1n));
    if (answer.code === 204) return;
    const text = answer.body.toString("utf8");
    throw new Failure("SANDBOX_START_FAILED", hookMessage(text) ?? `envd rejected its identity: HTTP ${answer.code} ${text.slice(0, MAX_SENTENCE_CHARS)}`);
  };
}

/** Returns the message of a template hook that failed. */
function hookMessage(body: string): string | undefined {
  try {
    const { message } = JSON.parse(body) as { message?: unknown };
    return typeof message === "string" && message.startsWith("on copy: ") ? message.slice(0, MAX_HOOK_CHARS) : undefined;
  } catch {
    return undefined;
  }
}

async function signedInit(handle: RuntimeHandle, body: string, nonce: string, privateKey: KeyObject, boundMs: number): Promise<AgentAnswer> {
  const digest = createHash("sha256").update(body).digest("hex");
  const signature = sign(null, Buffer.from(`svc-init\n${nonce}\n${digest}`), privateKey).toString("base64");
  const headers = { "content-type": "application/json", [NONCE_HEADER]: nonce, "x-svc-init-signature": signature };
  try {
    return await requestAgent(handle, { method: "POST", path: "/init", headers, body, boundMs, maxBytes: MAX_ANSWER_BYTES });
  } catch (error) {
    throw new Failure("SANDBOX_START_FAILED", `envd did not accept its identity: ${(error as Error).message}`, { cause: error });
  }
}
