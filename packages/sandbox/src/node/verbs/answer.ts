// The answer about a sandbox that a client owns: its identity and its tokens, which are derived each time.
import { CLIENT_ID, type SandboxAnswer } from "@svc/contract/fields.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { OwnedRecord } from "../../records/registry.ts";
import type { ProxyLink } from "../supply/proxy-link.ts";

/** The data of an answer; stored under an idempotency key, so it contains no token (I5). */
export type Answerable = { sandboxID: string; templateID: string; alias: string | undefined; secure: boolean; trafficPrivate: boolean; envdVersion: string };

export type AnswerSandbox = (answerable: Answerable) => SandboxAnswer;

export function openAnswers(seed: string, proxy: Pick<ProxyLink, "domain">): AnswerSandbox {
  return ({ sandboxID, templateID, alias, secure, trafficPrivate, envdVersion }) => ({
    sandboxID,
    templateID,
    clientID: CLIENT_ID,
    envdVersion,
    ...(alias === undefined ? {} : { alias }),
    ...(secure ? { envdAccessToken: deriveToken(seed, "envd", sandboxID) } : {}),
    ...(trafficPrivate ? { trafficAccessToken: deriveToken(seed, "traffic", sandboxID) } : {}),
    domain: proxy.domain,
  });
}

export function answerableOf({ sandboxID, templateID, envdVersion, status }: OwnedRecord): Answerable {
  const { secure, trafficPrivate, alias } = status.claim;
  return { sandboxID, templateID, alias, secure, trafficPrivate, envdVersion };
}
