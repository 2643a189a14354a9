// Gets a password for Amazon's registry with an access key: one API call, signed by Signature Version 4.
import { createHash, createHmac } from "node:crypto";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { z } from "zod";

export type Login = { readonly username: string; readonly password: string };

export type AwsKey = { readonly awsAccessKeyId: string; readonly awsSecretAccessKey: string; readonly awsRegion: string };

const TARGET = "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken";
const CALL_MS = 30_000;
const answerShape = z.object({ authorizationData: z.array(z.object({ authorizationToken: z.string() })).min(1) });

/** `endpoint` is for tests; by default it is that of the key's region, with the suffix of the image's host. */
export async function ecrLogin(key: AwsKey, host: string, signal: AbortSignal, endpoint?: string): Promise<Login> {
  const suffix = /^\d{12}\.dkr\.ecr(?:-fips)?\.[a-z0-9-]+\.(amazonaws\.com(?:\.cn)?)$/.exec(host)?.[1];
  if (suffix === undefined && endpoint === undefined)
    fail("INVALID_REQUEST", `fromImageRegistry: '${host}' is not a registry of AWS; type aws is for ACCOUNT.dkr.ecr.REGION.amazonaws.com`);
  if (!/^[a-z0-9-]{1,32}$/.test(key.awsRegion)) fail("INVALID_REQUEST", `fromImageRegistry: '${key.awsRegion}' is not a region`);
  const url = new URL(endpoint ?? `https://api.ecr.${key.awsRegion}.${suffix}/`);
  const body = "{}";
  const headers = { host: url.host, "content-type": "application/x-amz-json-1.1", "x-amz-target": TARGET, "x-amz-date": amzDate(new Date()) };
  const authorization = signature({ key, service: "ecr", method: "POST", path: "/", headers, body });
  const { host: _, ...sent } = headers;
  const response = await fetch(url, {
    method: "POST",
    headers: { ...sent, authorization },
    body,
    signal: AbortSignal.any([signal, AbortSignal.timeout(CALL_MS)]),
  }).catch((cause: unknown) => fail("INVALID_REQUEST", `fromImageRegistry: ${url.host} cannot be reached: ${asFailure(cause).message}`, { cause }));
  const text = await response.text();
  if (!response.ok) fail("INVALID_REQUEST", `fromImageRegistry: AWS refused the access key: HTTP ${response.status} ${text.slice(0, 300)}`);
  const token = answerShape.parse(JSON.parse(text)).authorizationData[0]?.authorizationToken ?? "";
  const decoded = Buffer.from(token, "base64").toString("utf8");
  const at = decoded.indexOf(":");
  return { username: decoded.slice(0, at), password: decoded.slice(at + 1) };
}

export function amzDate(date: Date): string {
  return date.toISOString().replace(/[-:]|\.\d{3}/g, "");
}

export type Signable = {
  readonly key: AwsKey;
  readonly service: string;
  readonly method: string;
  readonly path: string;
  /** Header names are lower-case and include host and x-amz-date. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
};

/** Returns the Authorization header. */
export function signature({ key, service, method, path, headers, body }: Signable): string {
  const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
  const hmac = (secret: string | Buffer, text: string) => createHmac("sha256", secret).update(text).digest();
  const names = Object.keys(headers).sort();
  const canonical = [method, path, "", ...names.map((name) => `${name}:${(headers[name] ?? "").trim()}`), "", names.join(";"), sha256(body)].join("\n");
  const moment = headers["x-amz-date"] ?? "";
  const scope = `${moment.slice(0, 8)}/${key.awsRegion}/${service}/aws4_request`;
  const signing = [moment.slice(0, 8), key.awsRegion, service, "aws4_request"].reduce<string | Buffer>(hmac, `AWS4${key.awsSecretAccessKey}`);
  const signed = hmac(signing, ["AWS4-HMAC-SHA256", moment, scope, sha256(canonical)].join("\n")).toString("hex");
  return `AWS4-HMAC-SHA256 Credential=${key.awsAccessKeyId}/${scope}, SignedHeaders=${names.join(";")}, Signature=${signed}`;
}
