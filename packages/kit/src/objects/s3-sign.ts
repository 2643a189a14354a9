// Signs requests to S3-compatible storage with AWS Signature Version 4.
import { createHash, createHmac } from "node:crypto";
import type { Credentials } from "./s3-credentials.ts";

export type Unsigned = {
  readonly method: string;
  readonly host: string;
  /** Each segment is encoded by `encoded`. */
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: Readonly<Record<string, string>>;
  readonly bodySHA256: string;
};

const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const hmac = (key: string | Buffer, text: string) => createHmac("sha256", key).update(text).digest();

/** Encodes all characters except A-Z a-z 0-9 - . _ ~ as %XX. */
export function encoded(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`);
}

export function queryOf(query: Unsigned["query"]): string {
  return Object.entries(query)
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join("&");
}

/** Returns the given headers and those that the signature adds. */
export function signed(request: Unsigned, { accessKeyID, secretAccessKey, sessionToken }: Credentials, region: string, now: Date): Record<string, string> {
  const time = now.toISOString().replace(/[-:]|\.\d{3}/g, "");
  const scope = `${time.slice(0, 8)}/${region}/s3/aws4_request`;
  const headers: Record<string, string> = {
    ...request.headers,
    host: request.host,
    "x-amz-content-sha256": request.bodySHA256,
    "x-amz-date": time,
    ...(sessionToken === undefined ? {} : { "x-amz-security-token": sessionToken }),
  };
  const names = Object.keys(headers).sort();
  const signedNames = names.join(";");
  const lines = names.map((name) => `${name}:${headers[name]}\n`).join("");
  const canonical = [request.method, request.path, queryOf(request.query), lines, signedNames, request.bodySHA256].join("\n");
  const key = [region, "s3", "aws4_request"].reduce((last, part) => hmac(last, part), hmac(`AWS4${secretAccessKey}`, time.slice(0, 8)));
  const signature = hmac(key, ["AWS4-HMAC-SHA256", time, scope, sha256(canonical)].join("\n")).toString("hex");
  return { ...headers, authorization: `AWS4-HMAC-SHA256 Credential=${accessKeyID}/${scope}, SignedHeaders=${signedNames}, Signature=${signature}` };
}
