// Sends envd its identity (POST /init), signed, so that no code inside can speak as the node.
import { createHash, type KeyObject, sign } from "node:crypto";
import { Failure } from "@svc/contract/failures.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import type { InitKeys } from "./init-keys.ts";
import { type AgentAnswer, requestAgent } from "./request.ts";

const CALL_MS = 5_000;
/** envd's answer is empty, or a sentence. */
const MAX_ANSWER_BYTES = 64 * 1024;
const MAX_SENTENCE_CHARS = 500;
/** A hook's failure comes with its last words. */
const MAX_HOOK_CHARS = 8_192;
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
  /** Another after each start from a checkpoint; programs inside can watch it. */
  readonly generation?: string;
  /** This is a copy: its template's hooks run, and have this long. */
  readonly onCopyMs?: number;
};

/** `initKey`: that its envd was started under. @throws SANDBOX_START_FAILED when envd refuses or does not answer. */
export type SendIdentity = (handle: RuntimeHandle, initKey: string | undefined, identity: Identity) => Promise<void>;

/** The nonce is the wall clock in nanoseconds; where that was set back, envd's refusal names the last one it took (I8). */
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
    const said = answer.body.toString("utf8");
    throw new Failure("SANDBOX_START_FAILED", hookWords(said) ?? `envd rejected its identity: HTTP ${answer.code} ${said.slice(0, MAX_SENTENCE_CHARS)}`);
  };
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
