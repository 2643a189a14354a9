// `svc exec`: runs one command in a sandbox and connects its streams, signals and exit code to this process.
import { PassThrough } from "node:stream";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { Failure } from "@svc/contract/failures.ts";
import { type ProcessEvent, shellExitCode } from "@svc/contract/process-event.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { awakeSandbox } from "../access/open-envd.ts";
import { complain, remark } from "../output/complain.ts";
import { UnwrittenError, write } from "../output/write.ts";
import { forwardSignals } from "./signals.ts";
import { runTerminal, terminalEnvironment, terminalSize } from "./terminal.ts";

type Options = AccessOptions & {
  user?: string;
  cwd?: string;
  env?: Record<string, string>;
  tty?: true;
  interactive?: true;
  stdin: boolean;
  timeout?: number;
};

/** The limit for stdin that is buffered here, and for one request. */
const MAX_INPUT_BYTES = 512 * 1024;
const EXIT_TIMED_OUT = 124;
const EXIT_NOT_EXECUTABLE = 126;
const EXIT_NOT_FOUND = 127;
const EXIT_BROKEN_PIPE = 141;

export function exec(sandboxID: string, command: readonly string[], options: Options): Promise<number> {
  const { user, cwd, env = {}, tty, interactive, timeout, url } = options;
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const envd = client.envd(await awakeSandbox(client, sandboxID));
    const [cmd = "", ...args] = command;
    const timeoutMs = timeout === undefined ? undefined : timeout * 1000;
    const base = { cmd, args, cwd, user, timeoutMs };
    try {
      if (tty === true) {
        const events = envd.start({ ...base, envs: { ...terminalEnvironment(), ...env }, pty: terminalSize() });
        return (await runTerminal({ envd, events, user, sendsInput: options.stdin })).exitCode;
      }
      const sendsInput = options.stdin && (interactive === true || !process.stdin.isTTY);
      return await runPiped(envd, envd.start({ ...base, envs: env, stdin: sendsInput }), sendsInput, user);
    } catch (error) {
      return exitCodeOf(error, cmd, sandboxID);
    }
  });
}

async function runPiped(envd: EnvdClient, events: AsyncGenerator<ProcessEvent>, sendsInput: boolean, user: string | undefined): Promise<number> {
  const ended = new AbortController();
  let pid: number | undefined;
  using _signals = forwardSignals(envd, () => pid, user);
  try {
    for await (const event of events) {
      if (event.type === "start") {
        pid = event.pid;
        if (sendsInput) void pumpInput(envd, pid, user, ended.signal);
      } else if (event.type === "end") {
        return shellExitCode(event);
      } else {
        await write(event.type === "stderr" ? process.stderr : process.stdout, event.data);
      }
    }
    throw new Failure("SERVER_UNREACHABLE", "the command's stream ended before the command did");
  } catch (error) {
    if (!(error instanceof UnwrittenError)) throw error;
    // As with a local pipe, a command that writes after its reader is gone is ended.
    if (pid !== undefined) await envd.sendSignal({ pid }, "SIGTERM", { user }).catch(() => {});
    return EXIT_BROKEN_PIPE;
  } finally {
    ended.abort();
    // A pending read of stdin would keep this process alive.
    if (sendsInput) process.stdin.destroy();
  }
}

/** Sends stdin in chunks and waits for each answer before the next, so that nothing accumulates here if the command does not read. */
async function pumpInput(envd: EnvdClient, pid: number, user: string | undefined, signal: AbortSignal): Promise<void> {
  try {
    // The input that arrives during one request goes into the next one: a read of this stream returns all that is buffered.
    const gathered = process.stdin.pipe(new PassThrough({ highWaterMark: MAX_INPUT_BYTES }));
    for await (const chunk of gathered as AsyncIterable<Buffer>) await envd.sendInput({ pid }, "stdin", chunk, { user, signal });
    await envd.closeStdin({ pid }, { user, signal });
  } catch (error) {
    if (signal.aborted) return;
    // The command has ended or closed its stdin: as with a local pipe, the rest of the input is discarded.
    if (error instanceof Failure && (error.name === "PROCESS_NOT_FOUND" || error.name === "INVALID_REQUEST")) return;
    remark(`svc: stdin was not sent to its end: ${(error as Error).message}`);
  }
}

/** Returns the codes that shells and timeout(1) use; rethrows other errors. */
function exitCodeOf(error: unknown, cmd: string, sandboxID: string): number {
  if (!(error instanceof Failure)) throw error;
  if (error.name === "TIMED_OUT") {
    complain(new Failure(error.name, `${cmd}: killed after its --timeout in sandbox ${sandboxID}`));
    return EXIT_TIMED_OUT;
  }
  const isMissing = error.name === "PROCESS_NOT_FOUND" || /executable file not found/i.test(error.message);
  if (isMissing || error.name === "ACCESS_DENIED") {
    complain(new Failure(error.name, /\s/.test(cmd) ? `${error.message}; the command runs without a shell: use sh -c '…' for shell syntax` : error.message));
    return isMissing ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
  }
  throw error;
}
