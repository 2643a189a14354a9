// One attempt to deliver an event to a webhook: the signed request, and the record of it.
import { createHash, randomUUID } from "node:crypto";
import type { WebhookDelivery } from "@svc/contract/webhook-deliveries.ts";
import { type E2bEvent, TEAM_ID, type WebhookRecord } from "@svc/contract/webhooks.ts";

const TIMEOUT_MS = 10_000;
const MAX_ANSWER_BYTES = 64 * 1024;
/** The part of an answer that is recorded. */
const MAX_RECORDED = 4096;
const MAX_RECORDED_HEADERS = 32;
/** Statuses of client errors that may pass. */
const passing: readonly number[] = [408, 409, 425, 429];
const dnsErrors: readonly string[] = ["ENOTFOUND", "EAI_AGAIN"];

export type Refusal = { readonly why: string; readonly isFinal: boolean };
export type Posted = { readonly attempt: WebhookDelivery /** Undefined if the receiver answered with a 2xx status. */; readonly refusal: Refusal | undefined };
type PostOptions = { readonly stopping: AbortSignal; readonly wallMs: () => number };

/** E2B's signature: the digest of the secret with the body after it, in base64 without padding. */
export function signatureOf(secret: string, body: string): string {
  return createHash("sha256").update(secret).update(body).digest("base64").replace(/=+$/, "");
}

export async function post(webhook: WebhookRecord, event: E2bEvent, { stopping, wallMs }: PostOptions): Promise<Posted> {
  const body = JSON.stringify(event);
  const id = randomUUID();
  const shownHeaders = {
    "content-type": "application/json",
    "user-agent": "svc-webhook",
    "e2b-webhook-id": webhook.id,
    "e2b-delivery-id": id,
    "e2b-signature-version": "v1",
  };
  const sent = {
    id,
    teamId: TEAM_ID,
    webhookId: webhook.id,
    eventId: event.id,
    sandboxId: event.sandboxId,
    eventType: event.type,
    requestBody: body,
    requestHeaders: JSON.stringify({ ...shownHeaders, "e2b-signature": "[redacted]" }),
    requestUrl: webhook.url,
    timestamp: new Date(wallMs()).toISOString(),
  };
  const since = performance.now();
  const taken = () => Math.round(performance.now() - since);
  try {
    const answer = await fetch(webhook.url, {
      method: "POST",
      // A redirect would send the event where nobody registered it.
      redirect: "manual",
      signal: AbortSignal.any([stopping, AbortSignal.timeout(TIMEOUT_MS)]),
      headers: { ...shownHeaders, "e2b-signature": signatureOf(webhook.signatureSecret, body) },
      body,
    });
    const responseBody = await readAway(answer);
    const got = { ...sent, durationMs: taken(), responseBody, responseHeaders: recorded(answer.headers), responseHttpStatusCode: answer.status };
    if (answer.ok) return { attempt: { ...got, status: "success", errorClass: null, errorMessage: null }, refusal: undefined };
    const why = `it answered ${answer.status}`;
    const isFinal = answer.status >= 400 && answer.status < 500 && !passing.includes(answer.status);
    return { attempt: { ...got, status: "failed", errorClass: "http_error", errorMessage: why }, refusal: { why, isFinal } };
  } catch (error) {
    const { cause } = error as { cause?: { code?: unknown } };
    const code = String(cause?.code ?? (error as Error).message);
    const isSlow = (error as Error).name === "TimeoutError";
    const why = isSlow ? `it did not answer within ${TIMEOUT_MS / 1000} s` : code;
    const errorClass = isSlow ? "timeout" : dnsErrors.includes(code) ? "dns_error" : "transport_error";
    const none = { responseBody: null, responseHeaders: null, responseHttpStatusCode: null };
    return { attempt: { ...sent, ...none, durationMs: taken(), status: "failed", errorClass, errorMessage: why }, refusal: { why, isFinal: false } };
  }
}

/** Reads a short answer, so that its connection can be used again; a long one is cut off. Returns its beginning. */
async function readAway(answer: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of answer.body ?? []) {
    if (bytes < MAX_RECORDED) chunks.push(chunk as Uint8Array);
    bytes += (chunk as Uint8Array).length;
    if (bytes > MAX_ANSWER_BYTES) break;
  }
  return Buffer.concat(chunks).toString("utf8").slice(0, MAX_RECORDED);
}

function recorded(headers: Headers): string {
  const shown = [...headers].filter(([name]) => name !== "set-cookie").slice(0, MAX_RECORDED_HEADERS);
  return JSON.stringify(Object.fromEntries(shown.map(([name, value]) => [name, value.slice(0, 256)])));
}
