// Decides for each request: a sandbox's port, the control plane, or an answer of the proxy's own.
import { isIP } from "node:net";
import { CONSOLE_SOCKET } from "@svc/contract/console.ts";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { type Address, Addressing, belowProxy, isEnvdOwn, type PreviewNames } from "@svc/kit/proxy/address.ts";
import { type Answer, answer, unknownSignature } from "@svc/kit/proxy/answer.ts";
import { ControlPlane } from "@svc/kit/proxy/control-target.ts";
import type { Decision, RoutedClient } from "@svc/kit/proxy/decision.ts";
import { asksForTunnel, tunnelOpened } from "@svc/kit/proxy/h2c-tunnel.ts";
import { type HeaderIDs, headerIDs } from "@svc/kit/proxy/header-ids.ts";
import { carriesOwnKey, type NamedKeys } from "@svc/kit/proxy/own-keys.ts";
import { HOST, type RequestHead } from "@svc/kit/proxy/request-head.ts";
import { type Drops, dropsOf, rewriteRequest } from "@svc/kit/proxy/rewrite.ts";
import { Target, type UpstreamPool } from "@svc/kit/proxy/target.ts";
import { gatewayToken } from "@svc/kit/secret.ts";
import type { Access, ProxyEntry, SandboxDirectory } from "../records/directory.ts";
import { carriesKeyAsBearer, carriesOwnToken, conflictOf, refuseEnvd, refuseTraffic } from "./credentials.ts";
import { forwardedPort, isSignedFile, namesInternalRoute } from "./envd-paths.ts";
import { targetKinds } from "./proxy-metrics.ts";
import { notFound, paused, SandboxTargets } from "./sandbox-target.ts";
import { refuseSignature, SignatureSearch } from "./signature.ts";
import type { Wakes } from "./wakes.ts";

export type RouterOptions = {
  readonly directory: SandboxDirectory;
  readonly wakes: Wakes;
  readonly control: string;
  readonly apiKey: () => string;
  readonly keys?: NamedKeys | undefined;
  readonly brands: readonly string[];
  readonly domains: readonly string[];
  readonly previews?: PreviewNames | undefined;
  /** Removes an Authorization: Bearer with a key of the platform as well. */
  readonly dropsKeyAsBearer?: boolean | undefined;
  /** Bound on the output of all commands of one sandbox; 0 or absent: no bound. */
  readonly outputBytesPerSecond?: number;
};

const CONTROL = targetKinds.indexOf("control");
const ENVD = targetKinds.indexOf("envd");
const APPLICATION = targetKinds.indexOf("application");

/** The content of a sandbox gets no script, and no access to other pages of the host. */
const OWN_ORIGIN = "content-security-policy: sandbox\r\nx-content-type-options: nosniff\r\n";

export class Router {
  readonly #options: RouterOptions;
  readonly #ids: HeaderIDs;
  readonly #addressing: Addressing;
  readonly #search: SignatureSearch;
  readonly #pool: UpstreamPool;
  readonly #control: Target;
  readonly #sandboxes = new Map<string, SandboxTargets>();
  readonly #controlDrops: Drops;
  /** Indexed by which headers are removed as well: X-API-Key (1), X-Access-Token (2), Host (4) and Authorization (8). */
  readonly #sandboxDrops: readonly Drops[];
  readonly #trafficHeader: string;
  readonly #gatewayToken: () => string;

  constructor(options: RouterOptions, head: RequestHead, pool: UpstreamPool) {
    this.#options = options;
    this.#pool = pool;
    this.#ids = headerIDs(head.names, options.brands);
    this.#addressing = new Addressing(this.#ids, options.domains, options.previews);
    this.#search = new SignatureSearch(options.directory);
    this.#control = new Target(pool, new ControlPlane(options.control));
    const ids = this.#ids;
    const count = head.names.names.length;
    const routing = ids.pairs.flatMap((pair) => [pair.sandboxID, pair.port]);
    this.#controlDrops = dropsOf(count, [...ids.toldByProxy, ...ids.gateway, ...routing, ...ids.trafficTokens]);
    this.#sandboxDrops = Array.from({ length: 16 }, (_, bits) =>
      dropsOf(count, [
        ...ids.toldByProxy,
        ...ids.gateway,
        ...routing,
        ...ids.trafficTokens,
        ...(bits & 1 ? [ids.apiKey] : []),
        ...(bits & 2 ? [ids.accessToken] : []),
        ...(bits & 4 ? [HOST] : []),
        ...(bits & 8 ? [ids.authorization] : []),
      ]),
    );
    this.#trafficHeader = `${options.brands[0] ?? "svc"}-traffic-access-token`;
    this.#gatewayToken = derived(options.apiKey, gatewayToken);
  }

  /**
   * Every request that may pass to a sleeping sandbox wakes it, even one to envd's health endpoint. A request that a running sandbox would
   * refuse gets the same refusal and wakes nothing.
   */
  route(head: RequestHead, client: RoutedClient): Decision {
    const named = this.#addressing.read(head, this.#options.apiKey(), this.#options.keys);
    const address = named ?? this.#withoutAddress(head);
    if (address === undefined) {
      const upgrade = head.target === CONSOLE_SOCKET;
      const text = rewriteRequest(head, { drops: this.#controlDrops, target: undefined, added: this.#forwarded(head, client), upgrade });
      return { target: this.#control, text, upgrade, kind: CONTROL };
    }
    if ("status" in address) return address;
    const { directory, wakes } = this.#options;
    // Credentials are checked by the destination node.
    // I49
    if (directory.isMoving(address.sandboxID)) return wakes.wait(address.sandboxID, client, address.port === ENVD_PORT ? ENVD : APPLICATION);
    const entry = directory.find(address.sandboxID);
    const access = entry ?? directory.sleeping(address.sandboxID);
    // I7
    if (access === undefined) return directory.isPaused(address.sandboxID) ? paused(address.sandboxID) : absent(directory, address.sandboxID);
    const conflict = conflictOf(head, this.#ids);
    if (conflict !== undefined) return conflict;
    if (address.port !== ENVD_PORT) return this.#toApplication(head, access, entry, address, client);
    const decision = this.#toEnvd(head, access, entry, address, client);
    // A browser can open a signed file at this server's own host, where the console is: as a page it must have an origin of its own.
    return named === undefined && "target" in decision ? { ...decision, addedLines: OWN_ORIGIN } : decision;
  }

  /** Probes and Prometheus have no certificate of the deployment: they reach the node's own health and metrics, and no sandbox. */
  isOpen(head: RequestHead): boolean {
    const { method, target } = head;
    const isRead = method === "GET" || method === "HEAD";
    return isRead && (target === "/health" || target === "/metrics") && this.#addressing.read(head, this.#options.apiKey()) === undefined;
  }

  #toEnvd(head: RequestHead, access: Access, entry: ProxyEntry | undefined, { target }: Address, client: RoutedClient): Decision {
    if (namesInternalRoute(target)) return answer(404, "There is no such route");
    const refusal = refuseEnvd(head, this.#ids, access, target);
    if (refusal !== undefined) return refusal;
    const port = forwardedPort(target);
    // envd's own port would open its internal routes to every client with the token.
    if (port === ENVD_PORT || Number.isNaN(port)) return answer(400, `port: expected 1 to 65535 and not ${ENVD_PORT}, got ${JSON.stringify(target)}`);
    if (entry === undefined) return this.#wakeEnvd(head, access, target, client);
    const drops = this.#sandboxDrops[this.#keyBits(head)] as Drops;
    const isForward = port !== undefined;
    const text = rewriteRequest(head, { drops, target: isForward ? `/relay?port=${port}` : changed(head, target), added: "", upgrade: isForward });
    const targets = this.#targetsOf(entry);
    const isOutput = target.startsWith("/process.Process/Start") || target.startsWith("/process.Process/Connect");
    return { target: isOutput ? targets.output(entry) : targets.port(entry, ENVD_PORT), text, upgrade: isForward, kind: ENVD };
  }

  #wakeEnvd(head: RequestHead, access: Access, target: string, client: RoutedClient): Decision {
    // Without the token, only a signed file URL reaches this point.
    if (access.secure && !head.has(this.#ids.accessToken)) {
      const refusal = refuseSignature(access, target, head.method === "POST", Date.now());
      if (refusal !== undefined) return answer(401, refusal);
    }
    return this.#options.wakes.wait(access.sandboxID, client, ENVD);
  }

  #toApplication(head: RequestHead, access: Access, entry: ProxyEntry | undefined, { target, port }: Address, client: RoutedClient): Decision {
    const refusal = refuseTraffic(head, this.#ids, access, this.#trafficHeader);
    if (refusal !== undefined) return refusal;
    if (entry === undefined) return this.#options.wakes.wait(access.sandboxID, client, APPLICATION);
    const mask = entry.maskRequestHost?.replace(/\$\{PORT\}/g, String(port));
    const bits = this.#keyBits(head) | (carriesOwnToken(head, this.#ids, entry) ? 2 : 0) | (mask === undefined ? 0 : 4);
    // Applications always learn the client's address, but the requested host only when a mask replaces it.
    const drops = this.#sandboxDrops[bits] as Drops;
    if (asksForTunnel(head) && (client.carried?.mayTunnel === true || this.#isFromGateway(head)))
      return { target: this.#targetOf(entry, port), text: "", tunnel: tunnelOpened(head, drops, mask), upgrade: true, kind: APPLICATION };
    const forwarded = this.#forwarded(head, client);
    const added = mask === undefined ? forwarded : `Host: ${mask}\r\nx-forwarded-host: ${head.value(HOST) ?? ""}\r\n${forwarded}`;
    const text = rewriteRequest(head, { drops, target: changed(head, target), added, upgrade: true });
    return { target: this.#targetOf(entry, port), text, upgrade: true, kind: APPLICATION };
  }

  #keyBits(head: RequestHead): number {
    const { keys } = this.#options;
    const apiKey = this.#options.apiKey();
    const asBearer = this.#options.dropsKeyAsBearer === true && carriesKeyAsBearer(head, this.#ids, apiKey, keys);
    return (carriesOwnKey(head, this.#ids.apiKey, apiKey, keys) ? 1 : 0) | (asBearer ? 8 : 0);
  }

  /** Old SDKs and signed URLs send no routing header with envd's own paths, so the signature or token identifies the sandbox. */
  #withoutAddress(head: RequestHead): Address | Answer | undefined {
    const whole = head.target;
    const below = belowProxy(whole);
    const target = below ?? whole;
    // At the root, GET /health is the platform's, even if the request has a token.
    const isHealth = below !== undefined && (target === "/health" || target.startsWith("/health?"));
    const isOwn = isEnvdOwn(target);
    if (isOwn || isHealth) {
      const found = isOwn ? this.#findOwn(head, target) : this.#findByToken(head, target);
      if (found !== undefined) return found;
    }
    return below === undefined ? undefined : this.#addressing.missing;
  }

  #findOwn(head: RequestHead, target: string): Address | Answer | undefined {
    const { method } = head;
    if (method !== "GET" && method !== "POST" && method !== "HEAD") return undefined;
    if (!isSignedFile(target)) return this.#findByToken(head, target);
    const found = this.#search.bySignature(target, method === "POST", performance.now());
    if (found === "busy") return answer(429, "Too many unknown signatures were sent; try again", {}, { "Retry-After": "1" });
    if (found === "unknown") return unknownSignature();
    return { sandboxID: found.sandboxID, port: ENVD_PORT, target };
  }

  #findByToken(head: RequestHead, target: string): Address | Answer | undefined {
    const token = head.value(this.#ids.accessToken);
    if (token === undefined) return undefined;
    const access = this.#search.byToken(token);
    if (access !== undefined) return { sandboxID: access.sandboxID, port: ENVD_PORT, target };
    // Old SDKs query the health of a removed sandbox to learn that it is gone.
    return target.startsWith("/health") ? notFound("") : answer(401, "The X-Access-Token is not the envdAccessToken of any running sandbox");
  }

  /** Accepts the client's address from a gateway of this deployment; from any other sender the header is ignored. */
  #forwarded(head: RequestHead, client: RoutedClient): string {
    const [, of, scheme] = this.#ids.gateway;
    if (!this.#isFromGateway(head)) return client.forwarded;
    const address = head.value(of) ?? "";
    const proto = head.value(scheme) === "https" ? "https" : "http";
    return isIP(address) === 0 ? client.forwarded : `x-forwarded-for: ${address}\r\nx-forwarded-proto: ${proto}\r\n`;
  }

  #isFromGateway(head: RequestHead): boolean {
    const [token] = this.#ids.gateway;
    return head.has(token) && head.carries(token, this.#gatewayToken());
  }

  #targetOf(entry: ProxyEntry, port: number): Target {
    return this.#targetsOf(entry).port(entry, port);
  }

  #targetsOf(entry: ProxyEntry): SandboxTargets {
    let targets = this.#sandboxes.get(entry.sandboxID);
    if (targets === undefined || !targets.isFor(entry)) {
      targets?.drop();
      const { directory, outputBytesPerSecond = 0 } = this.#options;
      targets = new SandboxTargets(entry, directory, outputBytesPerSecond, (policy) => new Target(this.#pool, policy));
      this.#sandboxes.set(entry.sandboxID, targets);
    }
    return targets;
  }

  /** Returns the number of requests that a sandbox has received without having begun a response. */
  waitingFor(sandboxID: string): number {
    return this.#sandboxes.get(sandboxID)?.waiting ?? 0;
  }

  trafficOf(sandboxID: string): { readonly open: number; readonly begun: number } {
    return this.#sandboxes.get(sandboxID) ?? { open: 0, begun: 0 };
  }

  drop(sandboxID: string): void {
    const targets = this.#sandboxes.get(sandboxID);
    this.#sandboxes.delete(sandboxID);
    targets?.drop();
  }
}

/** Answers 421 instead of 502 for a sandbox that moved, so that a gateway looks for it on its new node. */
function absent(directory: SandboxDirectory, sandboxID: string): Answer {
  const nodeID = directory.movedTo(sandboxID);
  if (nodeID === undefined) return notFound(sandboxID);
  const members = { sandboxId: sandboxID, node: nodeID, error_code: "SANDBOX_MOVED" };
  return answer(421, `The sandbox moved to node ${nodeID}`, members, { "x-svc-reason": "moved" });
}

/** Caches a value derived from a secret, until the secret changes. */
function derived(secret: () => string, derive: (secret: string) => string): () => string {
  let of: string | undefined;
  let value = "";
  return () => {
    if (of !== secret()) {
      of = secret();
      value = derive(of);
    }
    return value;
  };
}

function changed(head: RequestHead, target: string): string | undefined {
  return target.length === head.targetEnd - head.targetStart && head.originForm === undefined ? undefined : target;
}
