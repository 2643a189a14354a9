// Large bodies of known content, streamed to and from envd through a node, and compared by hash.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";

const BLOCK_BYTES = 1024 * 1024;

export type Envd = { readonly port: number; readonly headers: Readonly<Record<string, string>> };

/** The headers that reach this sandbox's envd through the node. */
export function envdAt(port: number, sandbox: { sandboxID: string; envdAccessToken?: string | undefined }): Envd {
  const token: Record<string, string> = sandbox.envdAccessToken === undefined ? {} : { "x-access-token": sandbox.envdAccessToken };
  return { port, headers: { "x-svc-sandbox-id": sandbox.sandboxID, "x-svc-target-port": String(ENVD_PORT), ...token } };
}

/** Every block differs from the others, so that a lost or repeated one is detected. */
function block(number: number): Buffer {
  const bytes = Buffer.alloc(BLOCK_BYTES, number % 251);
  bytes.writeUInt32BE(number, 0);
  return bytes;
}

/** POSTs `sizeBytes` to /files?path=…; returns the hexadecimal SHA-256 of the sent bytes. */
export function upload(envd: Envd, path: string, sizeBytes: number): Promise<string> {
  const hash = createHash("sha256");
  return new Promise((resolve, reject) => {
    const headers = { ...envd.headers, "content-type": "application/octet-stream", "content-length": String(sizeBytes) };
    const call = request({ host: "127.0.0.1", port: envd.port, method: "POST", path: `/files?path=${encodeURIComponent(path)}`, headers }, (response) => {
      let said = "";
      response.on("data", (chunk: Buffer) => void (said += chunk.toString()));
      response.on("end", () => (response.statusCode === 200 ? resolve(hash.digest("hex")) : reject(new Error(`upload: HTTP ${response.statusCode} ${said}`))));
    });
    call.on("error", reject);
    let sent = 0;
    const more = () => {
      while (sent < sizeBytes) {
        const bytes = block(sent / BLOCK_BYTES).subarray(0, sizeBytes - sent);
        hash.update(bytes);
        sent += bytes.length;
        if (!call.write(bytes)) return void call.once("drain", more);
      }
      call.end();
    };
    more();
  });
}

/** GETs /files?path=…; returns the size and the SHA-256 of the received bytes. */
export function download(envd: Envd, path: string): Promise<{ sizeBytes: number; sha256: string }> {
  const hash = createHash("sha256");
  let sizeBytes = 0;
  return new Promise((resolve, reject) => {
    const call = request({ host: "127.0.0.1", port: envd.port, path: `/files?path=${encodeURIComponent(path)}`, headers: envd.headers }, (response) => {
      if (response.statusCode !== 200) return reject(new Error(`download: HTTP ${response.statusCode}`));
      response.on("data", (chunk: Buffer) => {
        hash.update(chunk);
        sizeBytes += chunk.length;
      });
      response.on("end", () => resolve({ sizeBytes, sha256: hash.digest("hex") }));
      return undefined;
    });
    call.on("error", reject);
    call.end();
  });
}

/** The highest resident size of a process so far, in bytes. */
export function peakResidentBytes(pid: number): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}
