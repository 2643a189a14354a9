// A migration's dealings with masters: handing it to its executor, asking how it goes, and what the route says.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { codes } from "@svc/store/rpc/codes.ts";
import type { Membership } from "@svc/store/rpc/shapes.ts";
import { isColdSegment, type Masters } from "../masters/masters.ts";
import { verdictOf } from "./route.ts";
import type { MigrationEvent, MigrationRequest, Verdict } from "./task.ts";

type Member = Membership["members"][number];

const LEASE_TRIES = 8;
const LEASE_WAIT_MS = 50;
/** Which clients there are is asked for no more often than this, however many tasks run. */
const KNOWN_MS = 250;
const MAX_KNOWN = 64;
const taskStatus = { pending: 0, processing: 1, failed: 2, success: 3 } as const;

export class Executions {
  readonly #masters: Masters;
  /** By the authority that was asked first. */
  readonly #known = new Map<string, { readonly atMs: number; readonly members: Promise<readonly Member[]> }>();

  constructor(masters: Masters) {
    this.#masters = masters;
  }

  /**
   * Gives it to the executor's latest start that pings; such a start is waited for a little. At its first try a segment that no
   * client has ends it: a name that is wrong stays so. Later the segment of a holder that was lost may come back.
   */
  async dispatch(request: MigrationRequest, isFirst: boolean): Promise<MigrationEvent> {
    const unknown = isFirst ? await this.#unknownSegment(request) : undefined;
    if (unknown !== undefined) {
      const verdict = { is: "conflict", why: "svc store segments lists those there are" } as const;
      return { type: "trouble", with: "dispatch", why: `segment ${unknown} was not found at the store's master`, verdict, nowMs: Date.now() };
    }
    const { task_executor: executor, mode, source_segment: source, target_segments: targets, authority } = request;
    for (let tries = 1; ; tries++) {
      try {
        return { type: "dispatched", executionID: await this.#masters.assign(request, { executor, mode, source, targets }, authority) };
      } catch (error) {
        const isUnknown = error instanceof Failure && error.details["storeCode"] === codes.CLIENT_NOT_FOUND;
        if (!isUnknown || tries === LEASE_TRIES) return this.#trouble("dispatch", request, asFailure(error).message);
        await sleep(LEASE_WAIT_MS);
      }
    }
  }

  /** Undefined also where no master says what there is. One that is new may not be among those that were known a moment ago. */
  async #unknownSegment({ authority, source_segment, target_segments }: MigrationRequest): Promise<string | undefined> {
    // A device of the cold tier is its owner's, and no segment of its memory.
    const named = [source_segment, ...target_segments].filter((name) => !isColdSegment(name));
    let unknown: string | undefined;
    for (const knownMs of [KNOWN_MS, 0]) {
      const members = await this.#members(authority, knownMs).catch(() => undefined);
      unknown = named.find((name) => members?.every(({ segments }) => !segments.includes(name)) === true);
      if (unknown === undefined) break;
    }
    return unknown;
  }

  async poll(request: MigrationRequest, executionID: string): Promise<MigrationEvent> {
    try {
      const { status, clientID, message } = await this.#masters.task(executionID, request.authority);
      if (status === taskStatus.success) return { type: "completed" };
      if (status === taskStatus.failed) return this.#trouble("execution", request, `the executor ${request.task_executor} failed: ${message}`);
      if (!(await this.#isHeard(clientID))) return this.#trouble("execution", request, `the executor ${request.task_executor} is not heard any more`);
      return { type: "reported", isRunning: status === taskStatus.processing };
    } catch (error) {
      const { details, message } = asFailure(error);
      const isForgotten = details["storeCode"] === codes.TASK_NOT_FOUND;
      return this.#trouble(isForgotten ? "execution" : "status", request, message);
    }
  }

  async #trouble(what: "dispatch" | "execution" | "status", request: MigrationRequest, why: string): Promise<MigrationEvent> {
    return { type: "trouble", with: what, why, verdict: await this.#verdict(request), nowMs: Date.now() };
  }

  /** A route that nobody can be asked for leaves the question open. */
  async #verdict(request: MigrationRequest): Promise<Verdict> {
    return this.#masters.route(request, request.authority).then(
      (route) => verdictOf(request, route),
      () => ({ is: "open" }),
    );
  }

  async #isHeard(clientID: string): Promise<boolean> {
    return (await this.#members("", KNOWN_MS)).some((member) => member.clientID === clientID && member.isHeard);
  }

  /** As they were no longer ago than that. */
  #members(authority: string, knownMs: number): Promise<readonly Member[]> {
    const known = this.#known.get(authority);
    if (known !== undefined && performance.now() - known.atMs < knownMs) return known.members;
    const members = this.#masters.members(authority).then((membership) => membership.members);
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.set(authority, { atMs: performance.now(), members });
    return members;
  }
}
