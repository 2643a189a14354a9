// Asks the kernel inside a gVisor sandbox itself, over its control socket: what runsc's verbs ask, without the start of a program.
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { dialUnix } from "./dial.ts";
import { eventually } from "./process.ts";

/** Far beyond the stop of a thousand tasks; they answer in a millisecond. */
const CALL_TIMEOUT_MS = 15_000;
/** How long a killed client's wish may go on before what is seen is believed. */
const LOOK_BOUND_MS = 60_000;
/** Stacks of a thousand tasks are 2 MB. */
const ANSWER_MAX_BYTES = 256 * 1024 * 1024;

/** All throw INTERNAL where the kernel does not answer; whether it did what was asked is unknown then. */
export type Kernel = {
  /** Stops every task inside. Counts: stopped twice, it must be let go twice. */
  stop(runtimeID: string): Promise<void>;
  /** One too many ends the sandbox. */
  letGo(runtimeID: string): Promise<void>;
  /** Whether every task inside is stopped, when all that was asked before has been done. */
  standsStill(runtimeID: string): Promise<boolean>;
};

export function openKernel(stateRoot: string): Kernel {
  async function ask(runtimeID: string, method: string): Promise<unknown> {
    try {
      return await call(join(stateRoot, `runsc-${runtimeID}.sock`), method);
    } catch (cause) {
      return fail("INTERNAL", `sandbox ${runtimeID}: ${method} of the kernel inside: ${asFailure(cause).message}`, { cause });
    }
  }

  async function standsStill(runtimeID: string): Promise<boolean> {
    let all = false;
    await eventually(async () => {
      const stacks = String(await ask(runtimeID, "debug.Stacks"));
      const count = (text: string) => stacks.split(text).length - 1;
      const [tasks, stopped] = [count("kernel.(*Task).run("), count("kernel.(*Task).doStop(")];
      all = tasks > 0 && stopped === tasks;
      // A killed client's wish may still be on its way in; connections are taken in their order, so ours shows all before it.
      return count("created by gvisor.dev/gvisor/pkg/urpc.(*Server).StartHandling") <= 1;
    }, LOOK_BOUND_MS);
    return all;
  }

  return {
    stop: async (runtimeID) => void (await ask(runtimeID, "containerManager.Pause")),
    letGo: async (runtimeID) => void (await ask(runtimeID, "containerManager.Resume")),
    standsStill,
  };
}

type Answer = { readonly success: boolean; readonly err: string; readonly result: unknown };

/** One request on a connection of its own: JSON without any frame around it, either way. */
function call(socketPath: string, method: string): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const socket = dialUnix(socketPath);
  const parts: Buffer[] = [];
  let bytes = 0;
  socket.setTimeout(CALL_TIMEOUT_MS, () => socket.destroy(new Error(`no answer within ${CALL_TIMEOUT_MS} ms`)));
  socket.on("error", reject);
  socket.on("close", () => reject(new Error("the connection ended without an answer")));
  socket.on("data", (part) => {
    parts.push(part);
    bytes += part.length;
    if (bytes > ANSWER_MAX_BYTES) socket.destroy(new Error(`an answer of over ${ANSWER_MAX_BYTES} bytes`));
    // Its last character closes the object; one that does so in the middle is not yet JSON.
    if (part.at(-1) !== CLOSING_BRACE && part.at(-1) !== NEWLINE) return;
    const answer = parsed(Buffer.concat(parts).toString());
    if (answer === undefined) return;
    if (answer.success) resolve(answer.result);
    else reject(new Error(answer.err));
    socket.destroy();
  });
  socket.write(JSON.stringify({ method, arg: null }));
  return promise;
}

const CLOSING_BRACE = "}".charCodeAt(0);
const NEWLINE = "\n".charCodeAt(0);

function parsed(text: string): Answer | undefined {
  try {
    return JSON.parse(text) as Answer;
  } catch {
    return undefined;
  }
}
