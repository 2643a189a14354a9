// The base of the engine's class: calls of the native core, their answers, and the memory views it keeps alive.
import { type Failure, fail } from "@svc/contract/failures.ts";
import { RegisteredViews } from "./memory.ts";
import { type Answer, type EngineHandle, native } from "./native.ts";
import { failureFor } from "./status.ts";

/** Shared by the two forms of each operation, which differ only in how they call and wait. */
export class EngineCore {
  readonly handle: EngineHandle;
  readonly views = new RegisteredViews();

  constructor(autoDiscover: boolean, filter: readonly string[]) {
    this.handle = native().create(autoDiscover, filter);
  }

  /** @throws the failure of a negative answer. */
  call(operation: string, texts: readonly string[] = [], numbers: readonly bigint[] = []): number | bigint | string {
    return this.read(native().call(this.handle, operation, texts, BigUint64Array.from(numbers)));
  }

  async callAsync(operation: string, texts: readonly string[] = [], numbers: readonly bigint[] = []): Promise<number | bigint | string> {
    return this.read(await native().callAsync(this.handle, operation, texts, BigUint64Array.from(numbers)));
  }

  /** Returns undefined after the time-out; the operation continues, and the same call made again waits for it. */
  callWithin(timeoutMs: number, operation: string, texts: readonly string[]): number | bigint | string | undefined {
    const answer = native().callWithin(this.handle, operation, texts, new BigUint64Array(), timeoutMs);
    return answer === undefined ? undefined : this.read(answer);
  }

  read(answer: Answer): number | bigint | string {
    if (typeof answer !== "object") return answer;
    throw failureFor(answer[0], answer[1]);
  }

  /** Throws the failure of the last submit, status or transferSync if its result was negative. */
  checked(code: number): void {
    if (code < 0) throw this.transferFailure(code);
  }

  transferFailure(code: number): Failure {
    return failureFor(code, native().lastTransferError());
  }
}

export const flag = (truth: boolean): bigint => (truth ? 1n : 0n);

export function portNumber(port: number): bigint {
  if (Number.isInteger(port) && port >= 0 && port <= 65535) return BigInt(port);
  return fail("INVALID_REQUEST", `rpcPort: expected a whole number from 0 to 65535, got ${port}`);
}
