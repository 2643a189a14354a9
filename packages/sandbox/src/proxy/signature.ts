// Finds the sandbox of a request without an id: by the signature in a file URL, or by an envd token.
import { createHash } from "node:crypto";
import { TokenBucket } from "@svc/kit/token-bucket.ts";
import type { Access, SandboxDirectory } from "../records/directory.ts";
import { queryOf } from "./envd-paths.ts";
import { sameText } from "./same-text.ts";

/** Bound on remembered signatures; a client repeats a URL (ranges, retries) far more often than it makes a new one. */
const maxRemembered = 4096;
/** Bound on hashes for unknown signatures, since wrong ones must not cost the node its time. A second's worth is about 0.2 s of CPU. */
const hashRate = { perSecond: 100_000, burst: 100_000 };

export type Search = Access | "unknown" | "busy";

export class SignatureSearch {
  readonly #directory: SandboxDirectory;
  readonly #remembered = new Map<string, string>();
  readonly #hashes = new TokenBucket(hashRate, 0);

  constructor(directory: SandboxDirectory) {
    this.#directory = directory;
  }

  /** Returns the secure sandbox, running or asleep, whose token made the signature in `target`; `isWrite` for POST. */
  bySignature(target: string, isWrite: boolean, nowMs: number): Search {
    const signed = readSigned(target, isWrite);
    const known = this.#remembered.get(signed.signature);
    if (known !== undefined) {
      const access = this.#directory.find(known) ?? this.#directory.sleeping(known);
      if (access !== undefined && isSignedBy(signed, access)) return access;
      this.#remembered.delete(signed.signature);
    }
    return this.#searchIn(this.#directory.entries(), signed, nowMs) ?? this.#searchIn(this.#directory.sleepers(), signed, nowMs) ?? "unknown";
  }

  #searchIn(all: Iterable<Access>, signed: Signed, nowMs: number): Access | "busy" | undefined {
    for (const access of all) {
      if (!this.#hashes.take(nowMs)) return "busy";
      if (!isSignedBy(signed, access)) continue;
      this.#remember(signed.signature, access.sandboxID);
      return access;
    }
    return undefined;
  }

  #remember(signature: string, sandboxID: string): void {
    if (this.#remembered.size >= maxRemembered) {
      const oldest = this.#remembered.keys().next().value;
      if (oldest !== undefined) this.#remembered.delete(oldest);
    }
    this.#remembered.set(signature, sandboxID);
  }

  /** Returns the secure sandbox, running or asleep, that has this envd token. */
  byToken(token: string): Access | undefined {
    for (const access of this.#directory.entries()) if (access.secure && sameText(token, access.envdAccessToken)) return access;
    for (const access of this.#directory.sleepers()) if (access.secure && sameText(token, access.envdAccessToken)) return access;
    return undefined;
  }
}

/** The parts of a signed file URL: the signature, and the text that it covers besides the token. */
type Signed = { readonly signature: string; readonly over: string; readonly expires: string };

function readSigned(target: string, isWrite: boolean): Signed {
  const query = queryOf(target);
  const over = [query.get("path") ?? "", isWrite ? "write" : "read", query.get("username") ?? ""].join(":");
  return { signature: query.get("signature") ?? "", over, expires: query.get("signature_expiration") ?? "" };
}

function isSignedBy({ signature, over, expires }: Signed, access: Access): boolean {
  if (!access.secure) return false;
  const text = `${over}:${access.envdAccessToken}${expires === "" ? "" : `:${expires}`}`;
  return sameText(signature, `v1_${createHash("sha256").update(text).digest("base64").replace(/=+$/, "")}`);
}

/**
 * Returns why envd would refuse a signed file URL, or undefined if it would accept it. Only used for sleeping sandboxes: a running envd decides
 * itself, and an invalid signature must not wake a sandbox.
 */
export function refuseSignature(access: Access, target: string, isWrite: boolean, nowMs: number): string | undefined {
  const signed = readSigned(target, isWrite);
  if (!isSignedBy(signed, access)) return "invalid signature";
  const { expires } = signed;
  if (expires === "") return undefined;
  if (!/^[+-]?\d+$/.test(expires)) return "signature_expiration must be unix seconds";
  return Math.floor(nowMs / 1000) > Number(expires) ? "signature is already expired" : undefined;
}
