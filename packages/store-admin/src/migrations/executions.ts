// A migration's calls to the masters: assigning it to its executor, querying its status, and reading the route.
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
/** The minimum interval between queries for the list of clients, however many tasks run. */
const KNOWN_MS = 250;
const MAX_KNOWN = 64;
const taskStatus = { pending: 0, processing: 1, failed: 2, success: 3 } as const;

export class Executions {
  readonly #masters: Masters;
  /** The cached members, by the authority that was queried. */
  readonly #known = new Map<string, { readonly atMs: number; readonly members: Promise<readonly Member[]> }>();

  constructor(masters: Masters) {
    this.#masters = masters;
  }

  /**
   * Assigns the task to the executor's latest live start, waiting a short time for one. At the first attempt an unknown segment ends the
   * task, because its name is wrong; later it may belong to a lost owner that will return.
   */
  async dispatch(request: MigrationRequest, isFirst: boolean): Promise<MigrationEvent> {
    const unknown = isFirst ? await this.#unknownSegment(request) : undefined;
    if (unknown !== undefined) {
      const verdict = { is: "conflict", why: "svc store segments lists those there are" } as const;
      return { type: "attempt_failed", with: "dispatch", why: `segment ${unknown} was not found at the store's master`, verdict, nowMs: Date.now() };
    }
    const { task_executor: executor, mode, source_segment: source, target_segments: targets, authority } = request;
    for (let tries = 1; ; tries++) {
      try {
        return { type: "dispatched", executionID: await this.#masters.assign(request, { executor, mode, source, targets }, authority) };
      } catch (error) {
        const isUnknown = error instanceof Failure && error.details["storeCode"] === codes.CLIENT_NOT_FOUND;
        if (!isUnknown || tries === LEASE_TRIES) return this.#failedAttempt("dispatch", request, asFailure(error).message);
        await sleep(LEASE_WAIT_MS);
      }
    }
  }

  /**
   * Returns undefined also if no master answers. Since a new segment may be missing from cached members, a miss is checked against fresh
   * ones.
   */
  async #unknownSegment({ authority, source_segment, target_segments }: MigrationRequest): Promise<string | undefined> {
    // A cold-tier device belongs to its owner and is not a memory segment.
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
      if (status === taskStatus.failed) return this.#failedAttempt("execution", request, `the executor ${request.task_executor} failed: ${message}`);
      if (!(await this.#isHeard(clientID))) return this.#failedAttempt("execution", request, `the executor ${request.task_executor} is not heard any more`);
      return { type: "reported", isRunning: status === taskStatus.processing };
    } catch (error) {
      const { details, message } = asFailure(error);
      const isForgotten = details["storeCode"] === codes.TASK_NOT_FOUND;
      return this.#failedAttempt(isForgotten ? "execution" : "status", request, message);
    }
  }

  async #failedAttempt(what: "dispatch" | "execution" | "status", request: MigrationRequest, why: string): Promise<MigrationEvent> {
    return { type: "attempt_failed", with: what, why, verdict: await this.#verdict(request), nowMs: Date.now() };
  }

  /** If no master can be reached, the outcome stays open. */
  async #verdict(request: MigrationRequest): Promise<Verdict> {
    return this.#masters.route(request, request.authority).then(
      (route) => verdictOf(request, route),
      () => ({ is: "open" }),
    );
  }

  async #isHeard(clientID: string): Promise<boolean> {
    return (await this.#members("", KNOWN_MS)).some((member) => member.clientID === clientID && member.isHeard);
  }

  /** Returns members that are at most `knownMs` old. */
  #members(authority: string, knownMs: number): Promise<readonly Member[]> {
    const known = this.#known.get(authority);
    if (known !== undefined && performance.now() - known.atMs < knownMs) return known.members;
    const members = this.#masters.members(authority).then((membership) => membership.members);
    if (this.#known.size >= MAX_KNOWN) this.#known.clear();
    this.#known.set(authority, { atMs: performance.now(), members });
    return members;
  }
}
