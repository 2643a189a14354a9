// Calls of the admin server to the store's masters: it finds the one that serves, and tries a requested one first.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { Connections } from "@svc/store/client/session/connections.ts";
import { openDiscovery } from "@svc/store/client/session/discovery.ts";
import { refusal } from "@svc/store/client/session/refusal.ts";
import { codes } from "@svc/store/rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "@svc/store/rpc/operations.ts";
import type { Expected } from "@svc/store/rpc/schema.ts";
import { scopedKey, scopePrefix } from "@svc/store/rpc/scope.ts";
import type { ColdDisk, ColdFile, Membership, Route } from "@svc/store/rpc/shapes.ts";
import { type TaskAnswer, TaskStates } from "./task-states.ts";

const CALL_MS = 5000;
const CONNECTIONS = 2;
const LOOK_MS = 1000;

export type MastersOptions = {
  /** Returns HOST:PORT of each master; called repeatedly, since a master may move. */
  readonly addresses: () => readonly string[];
  readonly brand: string;
  readonly token: string | undefined;
  /** For masters at `tls://`. */
  readonly certificates?: PeerCertificates | undefined;
};
export type ObjectName = { readonly tenant: string; readonly domain: string | null; readonly object_set: string | null; readonly key: string };
export type Assignment = { readonly executor: string; readonly mode: "copy" | "move"; readonly source: string; readonly targets: readonly string[] };

type Master = { readonly address: string; readonly connections: Connections; authority: string | undefined };

/** The protocol represents the bytes of names and keys as latin1 characters. */
const toWire = (text: string) => Buffer.from(text).toString("latin1");
const fromWire = (text: string) => Buffer.from(text, "latin1").toString();

/** The master's identity of an object: its tenant, and a key that includes domain and object set. */
export function wireName({ tenant, domain, object_set, key }: ObjectName): { key: string; tenant: string } {
  const prefix = scopePrefix({ domain: domain ?? undefined, objectSet: object_set ?? undefined });
  return { key: scopedKey(toWire(prefix), toWire(key)), tenant: toWire(tenant) };
}

export class Masters {
  readonly #options: MastersOptions;
  #masters: Master[] = [];
  #lookedMs = Number.NEGATIVE_INFINITY;
  readonly #states = new TaskStates((authority, ids) => this.#askTasks(authority, ids));

  constructor(options: MastersOptions) {
    this.#options = options;
  }

  /** Lists the clients that the master knows, and its own stable id. */
  async members(authority = ""): Promise<Membership> {
    const answer = await this.#call(authority, "ListMembers");
    const { authority: own, members } = granted(answer, "listing clients");
    return {
      authority: fromWire(own),
      members: members.map((member) => ({ ...member, stableID: fromWire(member.stableID), segments: member.segments.map(fromWire) })),
    };
  }

  /** Returns where an object's replicas are; undefined if the object does not exist. */
  async route(object: ObjectName, authority = ""): Promise<Route | undefined> {
    const { key, tenant } = wireName(object);
    const answer = await this.#call(authority, "FindRoute", key, tenant);
    if (!answer.ok && answer.code === codes.OBJECT_NOT_FOUND) return undefined;
    const route = granted(answer, `looking for the route of key ${object.key}`);
    return { ...route, replicas: route.replicas.map((replica) => ({ ...replica, segment: fromWire(replica.segment) })) };
  }

  /**
   * Assigns the migration to the executor's latest start and returns the master's task id. @throws STORE_KEY_NOT_FOUND if no such executor
   * is live.
   */
  async assign(object: ObjectName, { executor, mode, source, targets }: Assignment, authority: string): Promise<string> {
    const { key, tenant } = wireName(object);
    const answer = await this.#call(
      authority,
      "AssignMigration",
      toWire(executor),
      0n,
      mode === "copy" ? 0 : 1,
      key,
      tenant,
      toWire(source),
      targets.map(toWire),
    );
    if (!answer.ok && answer.code === codes.CLIENT_NOT_FOUND) throw noRuntime(executor);
    return granted(answer, `assigning the ${mode} to ${executor}`);
  }

  /** Lists the cold-tier devices that are being served. */
  async coldDisks(): Promise<readonly ColdDisk[]> {
    return granted(await this.#call("", "ListColdDisks"), "listing devices of the cold tier");
  }

  /** Lists the files on a device, page by page. */
  async *filesOn(diskID: string): AsyncGenerator<readonly ColdFile[]> {
    for (let cursor = 1; cursor !== 0; ) {
      const { next, files } = granted(await this.#call("", "ListFiles", diskID, cursor), "listing what lies on a device");
      yield files;
      cursor = next;
    }
  }

  /** Releases files of objects that memory also holds; returns for each file whether it was released. */
  async release(diskID: string, files: readonly ColdFile[]): Promise<boolean[]> {
    const outcomes = await this.#call("", "ReleaseFiles", diskID, files);
    return outcomes.map(({ ok }) => ok);
  }

  /**
   * Sends a command to a client and returns the task's id. Epoch 0 means the latest start. @throws STORE_KEY_NOT_FOUND, or STORE_CONFLICT
   * if the epoch is not the latest.
   */
  async command(stableID: string, epoch: bigint, command: string): Promise<string> {
    const answer = await this.#call("", "CommandClient", toWire(stableID), epoch, toWire(command));
    if (!answer.ok && answer.code === codes.CLIENT_NOT_FOUND) throw noRuntime(stableID);
    if (!answer.ok && answer.code === codes.ILLEGAL_CLIENT) fail("STORE_CONFLICT", `stale epoch ${epoch}: a later start of ${stableID} is live`);
    return granted(answer, `commanding ${stableID}`);
  }

  async task(id: string, authority: string): Promise<{ status: number; clientID: string; message: string }> {
    const { status, clientID, message } = granted(await this.#states.of(id, authority), `asking for task ${id}`);
    return { status, clientID, message: fromWire(message) };
  }

  async #askTasks(authority: string, ids: readonly string[]): Promise<readonly TaskAnswer[]> {
    const [only] = ids;
    if (ids.length === 1 && only !== undefined) return [await this.#call(authority, "QueryTask", only)];
    try {
      return await this.#call(authority, "QueryTasks", ids);
    } catch (error) {
      // A master of an earlier release does not know QueryTasks.
      if (!(error instanceof Failure) || error.name !== "HOST_UNSUITABLE") throw error;
      return Promise.all(ids.map((id) => this.#call(authority, "QueryTask", id)));
    }
  }

  close(): void {
    for (const { connections } of this.#masters) connections.close();
  }

  /** Calls the master whose stable id is `authority` first, then the one that served last. */
  async #call<N extends OperationName>(authority: string, name: N, ...args: ArgsOf<N>): Promise<ResultOf<N>> {
    let last: unknown;
    for (const master of this.#inOrder(authority)) {
      try {
        const answer = await master.connections.call(name, ...args);
        if (isServing(answer)) {
          if (name === "ListMembers") master.authority = authorityIn(answer as ResultOf<"ListMembers">);
          this.#prefer(master);
          return answer;
        }
        last = answer;
      } catch (error) {
        // After a timeout the master may have executed the call, so another master must not receive it.
        if (!(error instanceof Failure) || error.name !== "SERVER_UNREACHABLE") throw error;
        last ??= error;
      }
    }
    if (last instanceof Failure)
      throw new Failure(last.name, `no master answers (${this.#masters.map(({ address }) => address).join(", ")}): ${last.message}`, { cause: last });
    return last as ResultOf<N>;
  }

  #inOrder(authority: string): Master[] {
    this.#look();
    const named = authority === "" ? undefined : this.#masters.find((master) => master.authority === authority);
    return named === undefined ? [...this.#masters] : [named, ...this.#masters.filter((master) => master !== named)];
  }

  /** Updates the list of masters to the configured ones and keeps their order. */
  #look(): void {
    if (performance.now() - this.#lookedMs < LOOK_MS) return;
    this.#lookedMs = performance.now();
    const named = this.#options.addresses();
    const isNamed = ({ address }: Master) => named.includes(address);
    for (const master of this.#masters) if (!isNamed(master)) master.connections.close();
    const known = this.#masters.filter(isNamed);
    const { brand, token, certificates } = this.#options;
    const fresh = named.filter((address) => !known.some((master) => master.address === address));
    this.#masters = [
      ...known,
      ...fresh.map((address) => ({
        address,
        connections: new Connections({ master: openDiscovery(address, { brand, certificates }), brand, callMs: CALL_MS, token, count: CONNECTIONS }),
        authority: undefined,
      })),
    ];
  }

  #prefer(master: Master): void {
    if (this.#masters[0] === master || !this.#masters.includes(master)) return;
    this.#masters.splice(this.#masters.indexOf(master), 1);
    this.#masters.unshift(master);
  }
}

const noRuntime = (stableID: string) =>
  new Failure("STORE_KEY_NOT_FOUND", `live runtime ${stableID} not found; svc store clients lists stable ids`, {
    details: { storeCode: codes.CLIENT_NOT_FOUND },
  });

const authorityIn = (answer: ResultOf<"ListMembers">) => (answer.ok ? fromWire(answer.value.authority) : undefined);

/** Returns false for a standby, and for a master that is replaying its log. */
function isServing(answer: unknown): boolean {
  // A batch then has the same code for each item.
  const { ok, code } = ((Array.isArray(answer) ? answer[0] : answer) ?? {}) as { ok?: boolean; code?: number };
  return !(ok === false && code === codes.UNAVAILABLE_IN_CURRENT_MODE);
}

function granted<T>(answer: Expected<T>, what: string): T {
  if (answer.ok) return answer.value;
  throw refusal(answer.code, what);
}

const COLD = "cold/";
/** The segment name of a cold-tier device in routes and migrations. */
export const coldSegment = (diskID: string): string => `${COLD}${diskID}`;
export const isColdSegment = (name: string): boolean => name.startsWith(COLD);
