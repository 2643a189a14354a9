// Decides for each request: a sandbox's port, the control plane, or an answer of the proxy's own.
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import type { ClientConnection } from "@svc/kit/proxy/client.ts";
import type { Decision } from "@svc/kit/proxy/front.ts";
import { HOST, type RequestHead } from "@svc/kit/proxy/request-head.ts";
import { type Drops, dropsOf, rewriteRequest } from "@svc/kit/proxy/rewrite.ts";
import { Target, type UpstreamPool } from "@svc/kit/proxy/target.ts";
import { type Address, Addressing, belowProxy } from "./address.ts";
import { ControlPlane } from "./control-target.ts";
import { carriesDeploymentKey, carriesOwnToken, conflictOf, refuseEnvd, refuseTraffic } from "./credentials.ts";
import type { Door, ProxyEntry, SandboxDirectory } from "./directory.ts";
import { isSignedFile, namesInternalRoute } from "./envd-paths.ts";
import { type HeaderIDs, headerIDs } from "./header-ids.ts";
import { targetKinds } from "./proxy-metrics.ts";
import { envdPort, notFound, SandboxTargets } from "./sandbox-target.ts";
import { refuseSignature, SignatureSearch } from "./signature.ts";
import type { Wakes } from "./wakes.ts";

export type RouterOptions = {
  readonly directory: SandboxDirectory;
  readonly wakes: Wakes;
  readonly control: string;
  readonly apiKey: () => string;
  readonly brands: readonly string[];
  readonly domains: readonly string[];
};

const CONTROL = targetKinds.indexOf("control");
const ENVD = targetKinds.indexOf("envd");
const APPLICATION = targetKinds.indexOf("application");

export class Router {
  readonly #options: RouterOptions;
  readonly #ids: HeaderIDs;
  readonly #addressing: Addressing;
  readonly #search: SignatureSearch;
  readonly #pool: UpstreamPool;
  readonly #control: Target;
  readonly #sandboxes = new Map<string, SandboxTargets>();
  readonly #controlDrops: Drops;
  /** By whether X-API-Key (1), X-Access-Token (2) and Host (4) are left out too. */
  readonly #sandboxDrops: readonly Drops[];
  readonly #trafficHeader: string;

  constructor(options: RouterOptions, head: RequestHead, pool: UpstreamPool) {
    this.#options = options;
    this.#pool = pool;
    this.#ids = headerIDs(head.names, options.brands);
    this.#addressing = new Addressing(this.#ids, options.domains);
    this.#search = new SignatureSearch(options.directory);
    this.#control = new Target(pool, new ControlPlane(options.control));
    const { ids } = { ids: this.#ids };
    const count = head.names.names.length;
    const routing = ids.pairs.flatMap((pair) => [pair.sandboxID, pair.port]);
    this.#controlDrops = dropsOf(count, [...ids.toldByProxy, ...routing, ...ids.trafficTokens]);
    this.#sandboxDrops = Array.from({ length: 8 }, (_, bits) =>
      dropsOf(count, [
        ...ids.toldByProxy,
        ...routing,
        ...ids.trafficTokens,
        ...(bits & 1 ? [ids.apiKey] : []),
        ...(bits & 2 ? [ids.accessToken] : []),
        ...(bits & 4 ? [HOST] : []),
      ]),
    );
    this.#trafficHeader = `${options.brands[0] ?? "svc"}-traffic-access-token`;
  }

  /**
   * Every request that may pass to a sleeping sandbox wakes it, a look at envd's health too: what the door of a running
   * one refuses is refused in the same words, and wakes nothing.
   */
  route(head: RequestHead, client: ClientConnection): Decision {
    const address = this.#addressing.read(head) ?? this.#withoutAddress(head);
    if (address === undefined) {
      const text = rewriteRequest(head, { drops: this.#controlDrops, target: undefined, added: client.forwarded, upgrade: false });
      return { target: this.#control, text, upgrade: false, kind: CONTROL };
    }
    if ("status" in address) return address;
    const { directory } = this.#options;
    const entry = directory.find(address.sandboxID);
    const door = entry ?? directory.sleeping(address.sandboxID);
    // A paused sandbox that traffic may not resume is as good as gone to it.
    if (door === undefined) return notFound(address.sandboxID);
    const conflict = conflictOf(head, this.#ids);
    if (conflict !== undefined) return conflict;
    return address.port === envdPort ? this.#toEnvd(head, door, entry, address, client) : this.#toApplication(head, door, entry, address, client);
  }

  #toEnvd(head: RequestHead, door: Door, entry: ProxyEntry | undefined, { target }: Address, client: ClientConnection): Decision {
    if (namesInternalRoute(target)) return answer(404, "There is no such route");
    const refusal = refuseEnvd(head, this.#ids, door, target);
    if (refusal !== undefined) return refusal;
    if (entry === undefined) return this.#wakeEnvd(head, door, target, client);
    const drops = this.#sandboxDrops[carriesDeploymentKey(head, this.#ids, this.#options.apiKey()) ? 1 : 0] as Drops;
    const text = rewriteRequest(head, { drops, target: changed(head, target), added: "", upgrade: false });
    return { target: this.#targetOf(entry, envdPort), text, upgrade: false, kind: ENVD };
  }

  #wakeEnvd(head: RequestHead, door: Door, target: string, client: ClientConnection): Decision {
    // Without the token it came this far as a signed file URL.
    if (door.secure && !head.has(this.#ids.accessToken)) {
      const refusal = refuseSignature(door, target, head.method === "POST", Date.now());
      if (refusal !== undefined) return answer(401, refusal);
    }
    return this.#options.wakes.wait(door.sandboxID, client, ENVD);
  }

  #toApplication(head: RequestHead, door: Door, entry: ProxyEntry | undefined, { target, port }: Address, client: ClientConnection): Decision {
    const refusal = refuseTraffic(head, this.#ids, door, this.#trafficHeader);
    if (refusal !== undefined) return refusal;
    if (entry === undefined) return this.#options.wakes.wait(door.sandboxID, client, APPLICATION);
    const mask = entry.maskRequestHost?.replace(/\$\{PORT\}/g, String(port));
    const bits =
      (carriesDeploymentKey(head, this.#ids, this.#options.apiKey()) ? 1 : 0) |
      (carriesOwnToken(head, this.#ids, entry) ? 2 : 0) |
      (mask === undefined ? 0 : 4);
    // Who asked goes to applications always, the host that was asked for only when another one takes its place.
    const added = mask === undefined ? client.forwarded : `Host: ${mask}\r\nx-forwarded-host: ${head.value(HOST) ?? ""}\r\n${client.forwarded}`;
    const text = rewriteRequest(head, { drops: this.#sandboxDrops[bits] as Drops, target: changed(head, target), added, upgrade: true });
    return { target: this.#targetOf(entry, port), text, upgrade: true, kind: APPLICATION };
  }

  /** Old SDKs and signed URLs send no routing header with /files and /health: their signature or token tells. */
  #withoutAddress(head: RequestHead): Address | Answer | undefined {
    const whole = head.target;
    const below = belowProxy(whole);
    const target = below ?? whole;
    const isFiles = target === "/files" || target.startsWith("/files?");
    if (isFiles || target === "/health" || target.startsWith("/health?")) {
      const found = isFiles ? this.#findFile(head, target) : this.#findByToken(head, target);
      if (found !== undefined) return found;
    }
    return below === undefined ? undefined : this.#addressing.missing;
  }

  #findFile(head: RequestHead, target: string): Address | Answer | undefined {
    const { method } = head;
    if (method !== "GET" && method !== "POST" && method !== "HEAD") return undefined;
    if (!isSignedFile(target)) return this.#findByToken(head, target);
    const found = this.#search.bySignature(target, method === "POST", performance.now());
    if (found === "busy") return answer(429, "Too many unknown signatures were sent; try again", {}, { "Retry-After": "1" });
    if (found === "unknown") return answer(401, "invalid signature");
    return { sandboxID: found.sandboxID, port: envdPort, target };
  }

  #findByToken(head: RequestHead, target: string): Address | Answer | undefined {
    const token = head.value(this.#ids.accessToken);
    if (token === undefined) return undefined;
    const door = this.#search.byToken(token);
    if (door !== undefined) return { sandboxID: door.sandboxID, port: envdPort, target };
    // Asking for the health of a sandbox that is gone is how old SDKs learn that it is.
    return target.startsWith("/health") ? notFound("") : answer(401, "The X-Access-Token is not the envdAccessToken of any running sandbox");
  }

  #targetOf(entry: ProxyEntry, port: number): Target {
    let targets = this.#sandboxes.get(entry.sandboxID);
    if (targets === undefined || !targets.isFor(entry)) {
      targets?.drop();
      targets = new SandboxTargets(entry, this.#options.directory, (policy) => new Target(this.#pool, policy));
      this.#sandboxes.set(entry.sandboxID, targets);
    }
    return targets.port(entry, port);
  }

  drop(sandboxID: string): void {
    const targets = this.#sandboxes.get(sandboxID);
    this.#sandboxes.delete(sandboxID);
    targets?.drop();
  }
}

function changed(head: RequestHead, target: string): string | undefined {
  return target.length === head.targetEnd - head.targetStart && head.originForm === undefined ? undefined : target;
}
