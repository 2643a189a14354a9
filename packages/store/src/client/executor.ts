// Executes copies and moves that the master assigns to this client in batches: reads replicas, verifies them and writes them to other holders.
import { asFailure, Failure } from "@svc/contract/failures.ts";
import { Semaphore } from "@svc/kit/semaphore.ts";
import { codes } from "../rpc/codes.ts";
import type { Descriptor } from "../rpc/shapes.ts";
import { diskPlace } from "./disk/places.ts";
import { call, type Flow, type Move, move } from "./flow.ts";
import type { LocalMemory, Part } from "./memory.ts";
import { checksumOf } from "./put.ts";
import type { Runner } from "./runner.ts";
import { refusal } from "./session/refusal.ts";
import type { Task, TaskExecutor } from "./session/task-loop.ts";
import { Staging } from "./staging.ts";

//  begin all ──> read ──checksum──> write ──> end all that arrived, revoke the others
//  └── one call of the master ──┘   └── slices that stay in the processor's cache ──┘

export type ExecutorParts = { readonly clientID: string; readonly runner: Runner; readonly memory: LocalMemory; onWrongBytes(): void };

const MOVE_MS = 30_000;
const BYTES_PER_MS = 10_000;
/** The bytes that are transferred together: few enough to stay cached between reading, verifying and writing. */
const SLICE_BYTES = 1 << 20;
/** Bounds the running slices of all batches together. */
const MAX_SLICES = 8;
/** Bounds the memory for objects that are larger than a slice. */
const LARGE_BYTES = 64 * 2 ** 20;

type Buffered = { readonly sizeBytes: bigint; readonly address: bigint; readonly endpoint: string };
type Copy = {
  readonly task: Task;
  readonly source: Buffered;
  readonly targets: readonly Buffered[];
  readonly bytes: number;
  readonly checksum: bigint | undefined;
};
/** A copy, and the memory that its bytes pass through. */
type Passing = { readonly copy: Copy; readonly part: Part };
type Failures = Map<Task, Failure>;

export function openExecutor(parts: ExecutorParts): TaskExecutor {
  const { runner, memory } = parts;
  const large = new Semaphore(LARGE_BYTES);
  const staging = new Staging(memory, { areaBytes: SLICE_BYTES, most: MAX_SLICES });

  async function passSlice(slice: readonly Copy[], failures: Failures): Promise<void> {
    const area = await staging.take();
    try {
      let at = 0;
      const passing = slice.map((copy) => {
        const [part] = memory.forReading([area.subarray(at, at + copy.bytes)]).parts;
        at += copy.bytes;
        return { copy, part: part as Part };
      });
      await runner.run(pass(parts, passing, failures));
    } finally {
      staging.give(area);
    }
  }

  async function passLarge(copy: Copy, failures: Failures): Promise<void> {
    await large.enter({ units: copy.bytes });
    try {
      const lent = memory.forWriting([Buffer.allocUnsafeSlow(copy.bytes)]);
      try {
        await runner.run(pass(parts, [{ copy, part: lent.parts[0] as Part }], failures));
      } finally {
        lent.end(false);
      }
    } finally {
      large.leave(copy.bytes);
    }
  }

  async function runGroup(group: readonly Task[], signal: AbortSignal, failures: Failures): Promise<void> {
    const begun = await runner.run(begin(parts, group, failures));
    const passes = slicesOf(begun.filter(({ targets }) => targets.length > 0)).map(async (slice) => {
      try {
        const [first] = slice;
        if (first !== undefined && first.bytes > SLICE_BYTES) await passLarge(first, failures);
        else await passSlice(slice, failures);
      } catch (error) {
        for (const { task } of slice) failures.set(task, asFailure(error));
      }
    });
    await Promise.all(passes);
    if (signal.aborted) for (const { task } of begun) failures.set(task, new Failure("SHUTTING_DOWN", `key ${task.key}: the ${task.kind} was abandoned`));
    const tasks = begun.map(({ task }) => task);
    await runner.run(
      end(
        parts,
        tasks.filter((task) => failures.has(task)),
        true,
        failures,
      ),
    );
    await runner.run(
      end(
        parts,
        tasks.filter((task) => !failures.has(task)),
        false,
        failures,
      ),
    );
  }

  return async (tasks, signal) => {
    const failures: Failures = new Map();
    const groups = Map.groupBy(tasks, ({ kind, tenant }) => `${kind} ${tenant}`);
    await Promise.all([...groups.values()].map((group) => runGroup(group, signal, failures)));
    return tasks.map((task) => failures.get(task));
  };
}

/** Begins tasks of one kind and tenant in one call. Returns those that the master accepts. */
function* begin({ clientID }: ExecutorParts, group: readonly Task[], failures: Failures): Flow<Copy[]> {
  const { kind, tenant } = group[0] as Task;
  const begun: Copy[] = [];
  try {
    const answers = yield* call(
      "BeginCopies",
      clientID,
      kind === "move",
      group.map(({ key, source, targets }) => ({ key, source, targets })),
      tenant,
    );
    group.forEach((task, at) => {
      const answer = answers[at];
      if (answer?.ok !== true) {
        failures.set(task, refusal(answer?.code ?? codes.INTERNAL_ERROR, `${kind === "copy" ? "copying" : "moving"} key ${task.key}`));
        return;
      }
      const { source, targets, checksum } = answer.value;
      const from = diskFile(source) ?? bufferOf(source);
      const to = targets.map(bufferOf);
      const wrong = from === undefined || to.includes(undefined);
      if (wrong)
        failures.set(
          task,
          new Failure("INVALID_REQUEST", `key ${task.key}: expected a replica in memory, in a NOF segment or on a disk, and targets in memory or NOF segments`),
        );
      begun.push({ task, source: from ?? nowhere, targets: wrong ? [] : (to as Buffered[]), bytes: Number(from?.sizeBytes ?? 0n), checksum });
    });
  } catch (error) {
    for (const task of group) failures.set(task, asFailure(error));
  }
  return begun;
}

const nowhere: Buffered = { sizeBytes: 0n, address: 0n, endpoint: "" };

function* end({ clientID }: ExecutorParts, group: readonly Task[], isFailed: boolean, failures: Failures): Flow<void> {
  const [first] = group;
  if (first === undefined) return;
  const { kind, tenant } = first;
  try {
    const answers = yield* call(
      "EndCopies",
      clientID,
      kind === "move",
      group.map(({ key }) => key),
      isFailed,
      tenant,
    );
    if (isFailed) return;
    group.forEach((task, at) => {
      const answer = answers[at];
      if (answer?.ok !== true) failures.set(task, refusal(answer?.code ?? codes.INTERNAL_ERROR, `ending the ${kind} of key ${task.key}`));
    });
  } catch (error) {
    if (!isFailed) for (const task of group) failures.set(task, asFailure(error));
  }
}

/**
 * Verifies what was read against the stored checksum; readers of the new replica verify it again, as after any put. Without a stored checksum wrong
 * bytes would stay unnoticed, so the new replica is read back and compared.
 */
function* pass(parts: ExecutorParts, all: readonly Passing[], failures: Failures): Flow<void> {
  const { onWrongBytes } = parts;
  const left = (list: readonly Passing[]) => list.filter(({ copy }) => !failures.has(copy.task));
  yield* moveAll("READ", all, ({ source }) => [source], failures);
  const sums = new Map<Passing, bigint>();
  for (const passing of left(all)) {
    const { copy, part } = passing;
    const checksum = checksumOf([part]);
    sums.set(passing, checksum);
    if (copy.checksum === undefined || checksum === copy.checksum) continue;
    onWrongBytes();
    const { key, source } = copy.task;
    const why = `key ${key}: the replica in ${source} has other bytes than were stored (checksum ${checksum}, expected ${copy.checksum})`;
    failures.set(copy.task, new Failure("STORE_CONFLICT", why));
  }
  yield* moveAll("WRITE", left(all), ({ targets }) => targets, failures);
  const unnamed = left(all).filter(({ copy }) => copy.checksum === undefined);
  for (let at = 0; unnamed.some(({ copy }) => copy.targets.length > at); at++) {
    const some = left(unnamed).filter(({ copy }) => copy.targets.length > at);
    yield* moveAll("READ", some, ({ targets }) => targets.slice(at, at + 1), failures);
    for (const passing of left(some)) {
      if (checksumOf([passing.part]) === sums.get(passing)) continue;
      onWrongBytes();
      const { task, targets } = passing.copy;
      failures.set(task, new Failure("STORE_CONFLICT", `key ${task.key}: the bytes that arrived at ${targets[at]?.endpoint} differ from those sent`));
    }
  }
}

/** Makes one transfer per holder. If it fails, all tasks with that holder fail. */
function* moveAll(opcode: "READ" | "WRITE", list: readonly Passing[], placesOf: (copy: Copy) => readonly Buffered[], failures: Failures): Flow<void> {
  const words = new Map<string, bigint[]>();
  const concerned = new Map<string, Task[]>();
  let bytes = 0n;
  for (const { copy, part } of list)
    for (const { endpoint, address, sizeBytes } of placesOf(copy)) {
      bytes += sizeBytes;
      const ranges = words.get(endpoint) ?? [];
      const tasks = concerned.get(endpoint) ?? [];
      ranges.push(part.address, address, sizeBytes);
      tasks.push(copy.task);
      words.set(endpoint, ranges);
      concerned.set(endpoint, tasks);
    }
  if (bytes === 0n) return;
  const moves: Move[] = [...words].map(([endpoint, each]) => ({ endpoint, words: BigUint64Array.from(each) }));
  const failed = yield* move(opcode, moves, MOVE_MS + Math.ceil(Number(bytes) / BYTES_PER_MS));
  for (const [endpoint, failure] of failed) for (const task of concerned.get(endpoint) ?? []) failures.set(task, failure);
}

/** Splits the copies in order into slices: several that fit together, or a single larger one. */
function slicesOf(copies: readonly Copy[]): Copy[][] {
  const slices: Copy[][] = [];
  let left = 0;
  for (const copy of copies) {
    if (copy.bytes > left || slices.length === 0) {
      slices.push([]);
      left = SLICE_BYTES;
    }
    slices.at(-1)?.push(copy);
    left -= copy.bytes;
  }
  return slices;
}

/** Returns the file on another client's disk, where that disk is a segment of the transfer engine. */
function diskFile(descriptor: Descriptor): Buffered | undefined {
  const disk = diskPlace(descriptor);
  return disk && { endpoint: disk.segment, address: disk.address, sizeBytes: BigInt(disk.sizeBytes) };
}

const bufferOf = ({ place }: Descriptor): Buffered | undefined => ("buffer" in place ? place.buffer : undefined);
