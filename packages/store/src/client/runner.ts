// Runs flows with promises or blocking the thread, and keeps the handles of the holders that they transfer bytes to and from.
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { TransferEngine } from "@svc/transfer/engine.ts";
import type { FileTrouble, SharedFiles } from "../files/shared-files.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";
import { isBucketSegment, isFileSegment } from "./disk/places.ts";
import type { Flow, Step } from "./flow.ts";
import type { Connections } from "./session/connections.ts";
import type { SyncCalls } from "./sync-calls.ts";

type MoveStep = Extract<Step, { kind: "move" }>;
type FilesStep = Extract<Step, { kind: "files" }>;

const asleep = new Int32Array(new SharedArrayBuffer(4));

export class Runner {
  readonly #engine: TransferEngine;
  readonly #calls: Connections;
  readonly #syncCalls: SyncCalls;
  /** The shared folder, if the cluster has one and this host as well. */
  shared: SharedFiles | undefined;
  readonly #handles = new Map<string, bigint>();
  readonly #opening = new Map<string, Promise<bigint>>();

  constructor(engine: TransferEngine, calls: Connections, syncCalls: SyncCalls) {
    this.#engine = engine;
    this.#calls = calls;
    this.#syncCalls = syncCalls;
  }

  async run<T>(flow: Flow<T>): Promise<T> {
    for (let next = flow.next(); ; ) {
      if (next.done) return next.value;
      let result: unknown;
      let failure: unknown;
      try {
        result = await this.#do(next.value);
      } catch (error) {
        failure = error;
      }
      next = failure === undefined ? flow.next(result) : flow.throw(failure);
    }
  }

  runSync<T>(flow: Flow<T>): T {
    for (let next = flow.next(); ; ) {
      if (next.done) return next.value;
      let result: unknown;
      let failure: unknown;
      try {
        result = this.#doSync(next.value);
      } catch (error) {
        failure = error;
      }
      next = failure === undefined ? flow.next(result) : flow.throw(failure);
    }
  }

  /** Returns the handle of a holder that was reached before. */
  handleOf(endpoint: string): bigint | undefined {
    return this.#handles.get(endpoint);
  }

  /** @throws SERVER_UNREACHABLE: the call may have been executed all the same. */
  callSync<N extends OperationName>(name: N, args: ArgsOf<N>): ResultOf<N> {
    return this.#syncCalls.call(name, args);
  }

  /** Installs the transport for files on demand, since few clients need it. */
  async #open(endpoint: string): Promise<bigint> {
    if (isFileSegment(endpoint) && this.#engine.getTransport("nvmeof") === undefined) await this.#engine.installTransport("nvmeof");
    return this.#engine.openSegment(endpoint);
  }

  /** Shares one pending open per segment, so that a folder that does not answer blocks only that one; each caller waits no longer than its own time limit. */
  async #openWithin(endpoint: string, timeoutMs: number): Promise<bigint> {
    const known = this.#opening.get(endpoint);
    const opening = known ?? this.#open(endpoint).finally(() => this.#opening.delete(endpoint));
    if (known === undefined) this.#opening.set(endpoint, opening);
    const late = Promise.withResolvers<never>();
    const timer = setTimeout(() => late.reject(new Failure("TIMED_OUT", `segment ${endpoint} was not opened within ${timeoutMs} ms`)), timeoutMs);
    try {
      return await Promise.race([opening, late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Blocks the thread for at most the time limit, even if the folder does not answer. */
  #openSync(endpoint: string, timeoutMs: number): bigint {
    if (isFileSegment(endpoint) && this.#engine.getTransport("nvmeof") === undefined) this.#engine.installTransportSync("nvmeof");
    return this.#engine.openSegmentSync(endpoint, timeoutMs);
  }

  async #do(step: Step): Promise<unknown> {
    if (step.kind === "wait") return sleep(step.ms);
    if (step.kind === "call") return this.#calls.call(step.name as "ServiceReady", ...(step.args as []));
    if (step.kind === "files") return this.#moveFiles(step);
    const failed = new Map<string, Failure>();
    await Promise.all(
      step.moves.map(async ({ endpoint, words }) => {
        try {
          const handle = this.#handles.get(endpoint) ?? (await this.#openWithin(endpoint, step.timeoutMs));
          this.#handles.set(endpoint, handle);
          await this.#engine.transfer(step.opcode, handle, words, step.timeoutMs);
        } catch (error) {
          failed.set(endpoint, asFailure(error));
        }
      }),
    );
    return failed;
  }

  #doSync(step: Step): unknown {
    if (step.kind === "wait") return Atomics.wait(asleep, 0, 0, step.ms);
    if (step.kind === "call") return this.#syncCalls.call(step.name as OperationName & "ServiceReady", step.args as []);
    if (step.kind === "files") return this.#moveFilesSync(step);
    return this.#moveSync(step);
  }

  #moveFiles({ opcode, files, timeoutMs }: FilesStep): Promise<(FileTrouble | undefined)[]> {
    const { shared } = this;
    return Promise.all(
      files.map(async ({ name, sizeBytes, words }) => {
        if (shared === undefined) return "absent";
        return opcode === "WRITE" ? shared.write(name, words, timeoutMs) : shared.read(name, sizeBytes, words, timeoutMs);
      }),
    );
  }

  #moveFilesSync({ opcode, files, timeoutMs }: FilesStep): (FileTrouble | undefined)[] {
    const { shared } = this;
    const endMs = performance.now() + timeoutMs;
    return files.map(({ name, sizeBytes, words }) => {
      const leftMs = endMs - performance.now();
      if (shared === undefined) return "absent";
      if (leftMs <= 0) return "late";
      return opcode === "WRITE" ? shared.writeSync(name, words, leftMs) : shared.readSync(name, sizeBytes, words, leftMs);
    });
  }

  #moveSync({ opcode, moves, timeoutMs }: MoveStep): Map<string, Failure> {
    const failed = new Map<string, Failure>();
    for (const { endpoint, words } of moves) {
      try {
        // This thread itself would have to fetch the file from the bucket, so blocking it would never succeed.
        if (isBucketSegment(endpoint) && endpoint.startsWith(`nvmeof/${this.#engine.getServerName()}/`))
          fail("TRANSPORT_UNAVAILABLE", "an object in a bucket of this client's own is read with promises only");
        const handle = this.#handles.get(endpoint) ?? this.#openSync(endpoint, timeoutMs);
        this.#handles.set(endpoint, handle);
        this.#engine.transferSync(opcode, handle, words, timeoutMs);
      } catch (error) {
        failed.set(endpoint, asFailure(error));
      }
    }
    return failed;
  }
}
