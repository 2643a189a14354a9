// Routes each request of a gateway to the node of its sandbox or to the gateway's own control plane, or answers it.

import { gatewayHeaders } from "@svc/contract/cluster.ts";
import { CONSOLE_SOCKET } from "@svc/contract/console.ts";
import { asFailure, type Failure } from "@svc/contract/failures.ts";
import { type Address, Addressing, belowProxy, isEnvdOwn, type PreviewNames } from "@svc/kit/proxy/address.ts";
import { type Answer, answer, unknownSignature } from "@svc/kit/proxy/answer.ts";
import type { Decision, RoutedClient, Wait } from "@svc/kit/proxy/decision.ts";
import { asksForTunnel } from "@svc/kit/proxy/h2c-tunnel.ts";
import { type HeaderIDs, headerIDs } from "@svc/kit/proxy/header-ids.ts";
import { carriesNamedKey, type NamedKeys } from "@svc/kit/proxy/own-keys.ts";
import type { RequestHead } from "@svc/kit/proxy/request-head.ts";
import { type Drops, dropsOf, rewriteRequest } from "@svc/kit/proxy/rewrite.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import { gatewayToken } from "@svc/kit/secret.ts";
import type { Arrivals } from "../members/arrivals.ts";
import type { Fate } from "../members/fate.ts";
import type { Lookups } from "../members/lookups.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";

export const targetKinds = ["control", "node"] as const;
const CONTROL = targetKinds.indexOf("control");
const NODE = targetKinds.indexOf("node");

export type RouterOptions = {
  readonly members: Members;
  readonly lookups: Lookups;
  readonly arrivals: Arrivals;
  readonly fateOf: (member: Member, sandboxID: string) => Fate;
  /** The gateway's own control plane. */
  readonly control: Target;
  readonly apiKey: string;
  readonly keys: NamedKeys;
  readonly brands: readonly string[];
  readonly domains: readonly string[];
  readonly previews: PreviewNames;
};

/** Bounds how often a request is routed again while its sandbox moves. */
const MAX_ROUNDS = 3;
/** Bounds the signatures and tokens whose sandbox is remembered; the newest ones are kept. */
const MAX_REMEMBERED = 4_096;
/** Matches the paths of a sandbox's own operations: /sandboxes/ID, /v2/sandboxes/ID/logs. */
const ofSandbox = /^(?:\/v2)?\/sandboxes\/([A-Za-z0-9_-]{1,64})(?=[/?]|$)/;
/** Matches a snapshot as a file: the proxy streams it, since its body may be too large for a control plane. */
const ofExport = /^\/snapshots\/([^/?]{1,200})\/export(?=\?|$)/;
const ofImport = /^\/snapshots\/import(?=\?|$)/;
/** Matches the content of a volume, which the proxy streams, too. */
const ofVolume = /^\/volumecontent\/([A-Za-z0-9_-]{1,64})\//;
const ofUpload = /^\/templates\/uploads\/[^?]*\?(?:.*&)?node=([a-z0-9-]{1,63})(?:&|$)/;

/** The headers to remove; `withKey`: from requests with a named key, which the node need not know and no sandbox may see. */
type DropsByKey = { readonly plain: Drops; readonly withKey: Drops };

export class Router {
  readonly #options: RouterOptions;
  readonly #ids: HeaderIDs;
  readonly #addressing: Addressing;
  readonly #remembered = new Map<string, string>();
  /** Nodes that have a volume, or reach the shared one. */
  readonly #volumes = new Map<string, Member>();
  readonly #drops: DropsByKey;
  /** With the routing headers as well, which the gateway then sets. */
  readonly #previewDrops: DropsByKey;
  readonly #mark: string;

  constructor(options: RouterOptions, head: RequestHead) {
    this.#options = options;
    this.#ids = headerIDs(head.names, options.brands);
    this.#addressing = new Addressing(this.#ids, options.domains, options.previews);
    const count = head.names.names.length;
    const { toldByProxy, gateway } = this.#ids;
    // The node checks credentials and addresses, and removes them, so they are forwarded.
    const both = (...ids: number[]): DropsByKey => {
      const dropped = [...toldByProxy, ...gateway, ...ids];
      return { plain: dropsOf(count, dropped), withKey: dropsOf(count, [...dropped, this.#ids.apiKey]) };
    };
    this.#drops = both();
    this.#previewDrops = both(...this.#ids.pairs.flatMap((pair) => [pair.sandboxID, pair.port]));
    this.#mark = `${gatewayHeaders.token}: ${gatewayToken(options.apiKey)}\r\n${gatewayHeaders.client}: `;
  }

  route(head: RequestHead, client: RoutedClient): Decision {
    const address = this.#addressing.read(head, this.#options.apiKey, this.#options.keys);
    if (address !== undefined) return "status" in address ? address : this.#toSandbox(head, address, client);
    return this.#withoutAddress(head, client) ?? this.#toControl(head, client);
  }

  #toSandbox(head: RequestHead, address: Address, client: RoutedClient): Decision {
    const { sandboxID } = address;
    const { members } = this.#options;
    if (client.movedFrom !== undefined) members.left(sandboxID, client.movedFrom);
    if (this.#isOnItsWay(sandboxID, client)) return this.#bring(client, sandboxID);
    const member = members.ownerOf(sandboxID, client.movedFrom);
    if (member !== undefined) return member.isUp ? this.#toNode(head, member, client, address) : this.#lost(member, sandboxID);
    // A sandbox that moved also comes here if its new node knows why it ended, while its id carries the slot of the former node.
    return this.#ask(client, { sandboxID }, () => unknown(members, sandboxID));
  }

  #lost(member: Member, sandboxID: string): Answer {
    const { state, message } = this.#options.fateOf(member, sandboxID);
    const members = { sandboxId: sandboxID, node: member.name, state, error_code: "NODE_LOST" };
    return answer(502, message, members, { "x-svc-reason": "node_lost" });
  }

  #isOnItsWay(sandboxID: string, client: RoutedClient): boolean {
    return this.#options.arrivals.isNeeded(sandboxID) && client.rounds < MAX_ROUNDS;
  }

  /** Forwards the request byte for byte, except for the headers that only this hop may set. */
  #toNode(head: RequestHead, member: Member, client: RoutedClient, address?: Address): Decision {
    const scheme = client.carried !== undefined ? `${gatewayHeaders.scheme}: https\r\n` : "";
    // A node opens a raw connection for whatever comes with a gateway's mark.
    const upgrade = client.carried?.mayTunnel === true || !asksForTunnel(head);
    const isPreview = address?.preview !== undefined;
    const drops = isPreview ? this.#previewDrops : this.#drops;
    const added = `${this.#mark}${client.peer}\r\n${scheme}${isPreview ? this.#routingTo(address) : ""}`;
    const text = rewriteRequest(head, { drops: this.#hasNamedKey(head) ? drops.withKey : drops.plain, target: undefined, added, upgrade });
    return { target: member.target, text, upgrade, kind: NODE };
  }

  /** A node that does not know a preview yet, or its domain, reads the target from these headers. */
  #routingTo({ sandboxID, port }: Address): string {
    const [pair] = this.#ids.pairs;
    return pair === undefined ? "" : `${pair.names.sandboxID}: ${sandboxID}\r\n${pair.names.port}: ${port}\r\n`;
  }

  /** Sends the content of a volume to its node, which alone can check its token. */
  #toVolume(head: RequestHead, volumeID: string, client: RoutedClient): Decision {
    const known = this.#volumes.get(volumeID);
    if (known?.isUp === true) return this.#toNode(head, known, client);
    this.#volumes.delete(volumeID);
    return this.#ask(client, { volumeID }, () => noSuchVolume(this.#options.members, volumeID));
  }

  #hasNamedKey(head: RequestHead): boolean {
    return carriesNamedKey(head, this.#ids.apiKey, this.#options.keys);
  }

  /**
   * Operations of a sandbox and uploads go to their node; the control plane answers if that node is unknown or lost, and to a named key, which
   * only gateways know for certain.
   */
  #toControl(head: RequestHead, client: RoutedClient): Decision {
    const { target } = head;
    const volumeID = ofVolume.exec(target)?.[1];
    if (volumeID !== undefined) return this.#toVolume(head, volumeID, client);
    const { members, control } = this.#options;
    const sandboxID = ofSandbox.exec(target)?.[1];
    const member = sandboxID !== undefined ? members.ownerOf(sandboxID, client.movedFrom) : nodeOfFile(members, target);
    const isSettled = sandboxID === undefined || !this.#options.arrivals.isNeeded(sandboxID);
    if (member?.isUp === true && isSettled && !this.#hasNamedKey(head)) return this.#toNode(head, member, client);
    const upgrade = target === CONSOLE_SOCKET;
    const text = rewriteRequest(head, { drops: this.#drops.plain, target: undefined, added: client.forwarded, upgrade });
    return { target: control, text, upgrade, kind: CONTROL };
  }

  /** Old SDKs and signed URLs send envd's own paths without a routing header, so only a node knows which sandbox they mean. */
  #withoutAddress(head: RequestHead, client: RoutedClient): Decision | undefined {
    const whole = head.target;
    const below = belowProxy(whole);
    const target = below ?? whole;
    const isOwn = isEnvdOwn(target);
    // At the root, GET /health belongs to the platform even if a token is sent.
    const isHealth = below !== undefined && (target === "/health" || target.startsWith("/health?"));
    const token = head.value(this.#ids.accessToken);
    const isSigned = token === undefined && target.startsWith("/files?") && /[?&]signature=/.test(target);
    if (isSigned || (token !== undefined && (isOwn || isHealth))) {
      const query = isSigned ? { target, isWrite: head.method === "POST" ? ("true" as const) : ("false" as const) } : { token: token as string };
      const known = this.#remembered.get(isSigned ? `${query.isWrite} ${target}` : (token as string));
      if (known !== undefined && this.#isOnItsWay(known, client)) return this.#bring(client, known);
      const member = known === undefined ? undefined : this.#options.members.ownerOf(known);
      if (member?.isUp === true) return this.#toNode(head, member, client);
      return this.#ask(client, query, () => noSuchOwner(isSigned, isHealth), isSigned ? `${query.isWrite} ${target}` : token);
    }
    return below === undefined ? undefined : this.#addressing.missing;
  }

  /** Lets the request wait until its sandbox is on a node that can resume it. */
  #bring(client: RoutedClient, sandboxID: string): Wait {
    let waiting: RoutedClient | undefined = client;
    void this.#options.arrivals.bring(sandboxID).then(
      () => waiting?.proceed(),
      // If its own node is up, the next round gets that node's answer.
      (error: unknown) => waiting?.proceed(this.#options.members.ownerOf(sandboxID)?.isUp === true ? undefined : notBrought(sandboxID, asFailure(error))),
    );
    return {
      kind: NODE,
      leave: () => {
        waiting = undefined;
      },
      tooLate: () => answer(502, "The sandbox is on its way to another node, and was not there in time", { sandboxId: sandboxID }),
    };
  }

  /** Lets the request wait for the answers of the nodes, then routes it again. */
  #ask(client: RoutedClient, query: Parameters<Lookups["find"]>[0], otherwise: () => Answer, remember?: string): Wait | Answer {
    if (client.rounds > 1) return otherwise();
    let waiting: RoutedClient | undefined = client;
    void this.#options.lookups.find(query).then(
      (found) => {
        if (found?.sandboxID !== undefined && remember !== undefined) this.#remember(remember, found.sandboxID);
        if (found !== undefined && query.volumeID !== undefined) this.#rememberVolume(query.volumeID, found.member);
        waiting?.proceed(found === undefined ? otherwise() : undefined);
      },
      (error: unknown) => waiting?.proceed(answerOf(asFailure(error))),
    );
    return {
      kind: NODE,
      leave: () => {
        waiting = undefined;
      },
      tooLate: () => answer(502, "The nodes did not say in time whose sandbox this is"),
    };
  }

  #rememberVolume(volumeID: string, member: Member): void {
    if (this.#volumes.size >= MAX_REMEMBERED) this.#volumes.delete(this.#volumes.keys().next().value as string);
    this.#volumes.set(volumeID, member);
  }

  #remember(key: string, sandboxID: string): void {
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.delete(this.#remembered.keys().next().value as string);
    this.#remembered.set(key, sandboxID);
  }
}

/** Returns the node of an upload or of a snapshot as a file; an import goes to the node with the most free disk. */
function nodeOfFile(members: Members, target: string): Member | undefined {
  const exported = ofExport.exec(target)?.[1];
  if (exported !== undefined) return members.up.find((member) => member.held(unescaped(exported)) !== undefined);
  const freeDiskOf = ({ load }: Member) => (load === undefined ? 0 : load.disk.totalBytes - load.disk.usedBytes);
  if (ofImport.test(target)) return [...members.up].sort((a, b) => freeDiskOf(b) - freeDiskOf(a))[0];
  return members.named(ofUpload.exec(target)?.[1] ?? "");
}

function unescaped(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function answerOf(failure: Failure, members: Readonly<Record<string, string>> = {}): Answer {
  const retry: Record<string, string> = failure.retryAfterSeconds === undefined ? {} : { "Retry-After": String(failure.retryAfterSeconds) };
  return answer(failure.row.http, failure.message, { ...members, error_code: failure.name }, retry);
}

/** Returns a 502 whose text no client takes for a sandbox that is gone for good. */
function notBrought(sandboxID: string, failure: Failure): Answer {
  const { message, name } = failure;
  // A 503 is passed on, because a retry succeeds once etcd or object storage answers.
  if (failure.row.http === 503) return answerOf(failure, { sandboxId: sandboxID });
  const said = message.replace(/was not found/gi, "is missing").replace(/port is not open/gi, "port is closed");
  const members = { sandboxId: sandboxID, error_code: name };
  return answer(502, `The sandbox is paused, and could not be brought to a node that is up: ${said}`, members, { "x-svc-reason": "node_lost" });
}

/** A sandbox is not known to be gone while a node is missing that might have it. */
function unknown(members: Members, sandboxID: string): Answer {
  const uncertain = members.whyUncertain(sandboxID);
  if (uncertain === "") return answer(502, "The sandbox was not found", { sandboxId: sandboxID }, { "x-svc-reason": "not_found" });
  const said = `No node that answers holds the sandbox; ${uncertain}`;
  return answer(502, said, { sandboxId: sandboxID, error_code: "NODE_LOST" }, { "x-svc-reason": "node_lost" });
}

/** An SDK reads 404 as a volume that does not exist, so it is not said while a node is away that may have it. */
function noSuchVolume(members: Members, volumeID: string): Answer {
  const uncertain = members.whyUncertain("");
  if (uncertain === "") return answer(404, `volume '${volumeID}' was not found on any node`, { error_code: "VOLUME_NOT_FOUND" });
  return answer(502, `no node that answers has volume '${volumeID}'; ${uncertain}`, { error_code: "NODE_LOST" });
}

function noSuchOwner(isSigned: boolean, isHealth: boolean): Answer {
  if (isSigned) return unknownSignature();
  // Old SDKs learn from the 502 of its health check that a sandbox is gone.
  if (isHealth) return answer(502, "The sandbox was not found", { sandboxId: "" }, { "x-svc-reason": "not_found" });
  return answer(401, "The X-Access-Token is not the envdAccessToken of any running sandbox");
}
