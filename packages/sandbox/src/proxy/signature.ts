// Finds the sandbox of a request that carries no id: by the signature in a file URL, or by an envd token.
import { createHash } from "node:crypto";
import type { ProxyEntry, SandboxDirectory } from "./directory.ts";
import { queryOf } from "./envd-paths.ts";
import { sameText } from "./same-text.ts";

/** Remembered signatures; a client repeats a URL (ranges, retries) far more often than it makes a new one. */
const maxRemembered = 4096;
/** Hashes spent on unknown signatures in one second: wrong ones must not cost the node its time. About 0.2 s of CPU. */
const hashesPerSecond = 100_000;

export type Search = ProxyEntry | "unknown" | "busy";

export class SignatureSearch {
  readonly #directory: SandboxDirectory;
  readonly #remembered = new Map<string, string>();
  #spent = 0;
  #second = 0;

  constructor(directory: SandboxDirectory) {
    this.#directory = directory;
  }

  /** The running secure sandbox whose token made the signature in `target`; `isWrite` for POST. */
  bySignature(target: string, isWrite: boolean, nowMs: number): Search {
    const query = queryOf(target);
    const signature = query.get("signature") ?? "";
    const signed = [query.get("path") ?? "", isWrite ? "write" : "read", query.get("username") ?? ""].join(":");
    const expiry = query.get("signature_expiration");
    const matches = (entry: ProxyEntry) => entry.secure && sameText(signature, signatureOf(signed, entry.envdAccessToken, expiry));
    const known = this.#remembered.get(signature);
    if (known !== undefined) {
      const entry = this.#directory.find(known);
      if (entry !== undefined && matches(entry)) return entry;
      this.#remembered.delete(signature);
    }
    const second = Math.floor(nowMs / 1000);
    if (second !== this.#second) {
      this.#second = second;
      this.#spent = 0;
    }
    for (const entry of this.#directory.entries()) {
      if (this.#spent >= hashesPerSecond) return "busy";
      this.#spent++;
      if (matches(entry)) {
        this.#remember(signature, entry.sandboxID);
        return entry;
      }
    }
    return "unknown";
  }

  #remember(signature: string, sandboxID: string): void {
    if (this.#remembered.size >= maxRemembered) {
      const oldest = this.#remembered.keys().next().value;
      if (oldest !== undefined) this.#remembered.delete(oldest);
    }
    this.#remembered.set(signature, sandboxID);
  }

  /** The running secure sandbox whose envd token this is. */
  byToken(token: string): ProxyEntry | undefined {
    for (const entry of this.#directory.entries()) if (entry.secure && sameText(token, entry.envdAccessToken)) return entry;
    return undefined;
  }
}

function signatureOf(signed: string, token: string, expiry: string | null): string {
  const text = `${signed}:${token}${expiry === null ? "" : `:${expiry}`}`;
  return `v1_${createHash("sha256").update(text).digest("base64").replace(/=+$/, "")}`;
}
