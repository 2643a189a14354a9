// Calls the kernel inside a gVisor sandbox over its control socket, like runsc's verbs but without the start of a program.
import { join } from "node:path";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { dialUnix } from "./dial.ts";
import { eventually } from "./process.ts";

/** Ample: stopping a thousand tasks takes a millisecond. */
const CALL_TIMEOUT_MS = 15_000;
/** How long a killed client's request may continue before the observed state is trusted. */
const LOOK_BOUND_MS = 60_000;
/** Stacks of a thousand tasks are 2 MB. */
const ANSWER_MAX_BYTES = 256 * 1024 * 1024;

/** Every method throws INTERNAL if the kernel does not answer; whether it did what was requested is then unknown. */
export type Kernel = {
  /** Stops every task inside. The kernel counts: a sandbox stopped twice must be resumed twice. */
  stop(runtimeID: string): Promise<void>;
  /** Undoes one stop; one call too many ends the sandbox. */
  resume(runtimeID: string): Promise<void>;
  /** Says whether every task inside is stopped, once all earlier requests are done. */
  isStopped(runtimeID: string): Promise<boolean>;
};

export function openKernel(stateRoot: string): Kernel {
  async function ask(runtimeID: string, method: string): Promise<unknown> {
    try {
      return await call(join(stateRoot, `runsc-${runtimeID}.sock`), method);
    } catch (cause) {
      return fail("INTERNAL", `sandbox ${runtimeID}: ${method} of the kernel inside: ${asFailure(cause).message}`, { cause });
    }
  }

  async function isStopped(runtimeID: string): Promise<boolean> {
    let all = false;
    await eventually(async () => {
      const stacks = String(await ask(runtimeID, "debug.Stacks"));
      const count = (text: string) => stacks.split(text).length - 1;
      const [tasks, stopped] = [count("kernel.(*Task).run("), count("kernel.(*Task).doStop(")];
      all = tasks > 0 && stopped === tasks;
      // A killed client's request may still be queued; connections are accepted in order, so our answer reflects all earlier ones.
      return count("created by gvisor.dev/gvisor/pkg/urpc.(*Server).StartHandling") <= 1;
    }, LOOK_BOUND_MS);
    return all;
  }

  return {
    stop: async (runtimeID) => void (await ask(runtimeID, "containerManager.Pause")),
    resume: async (runtimeID) => void (await ask(runtimeID, "containerManager.Resume")),
    isStopped,
  };
}

type Answer = { readonly success: boolean; readonly err: string; readonly result: unknown };

/** Sends one request on its own connection; both sides send unframed JSON. */
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
    // The object's closing brace comes last; a brace in the middle does not yet make valid JSON.
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
