// `svc connect`: a terminal in a sandbox, new or detached earlier.
import type { SandboxAccess, SvcClient } from "@svc/contract/client.ts";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { ProcessEvent } from "@svc/contract/process-event.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { keepAlive } from "../access/keep-alive.ts";
import { awakeSandbox } from "../access/open-envd.ts";
import { remark, UsageError } from "../output/complain.ts";
import { detachByteOf, runTerminal, type TerminalEnd, terminalEnvironment, terminalSize } from "./terminal.ts";

type Options = AccessOptions & { new?: true; session: string; user?: string; detachKey: string };

const MAX_SESSIONS = 100;

export function connect(sandboxID: string, { url, new: isNew, session, user, detachKey }: Options): Promise<number> {
  return withClient(url === undefined ? {} : { url }, async (client) => {
    const sandbox = await awakeSandbox(client, sandboxID);
    return (await openSession(client, sandbox, { session, user, detachKey, isNew: isNew === true })).exitCode;
  });
}

type Session = { session: string; detachKey: string; user?: string | undefined; isNew?: boolean };

/** Opens the named shell, or attaches to it, until it ends or the user detaches. */
export async function openSession(client: SvcClient, sandbox: SandboxAccess, options: Session): Promise<TerminalEnd> {
  const { user, detachKey } = options;
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(options.session))
    throw new UsageError(`--session: expected 1 to 64 letters, digits, . _ or -; got ${JSON.stringify(options.session)}`);
  const detachByte = detachByteOf(detachKey);
  const envd = client.envd(sandbox);
  const open = new Map((await envd.processes({ user })).map(({ tag, pid }) => [tag, pid]));
  const session = options.isNew === true ? freeName(options.session, open) : options.session;
  const pid = open.get(tagOf(session));
  if (pid !== undefined) remark(`back in session ${session} of sandbox ${sandbox.sandboxID}`);
  const events = pid === undefined ? startShell(envd, tagOf(session), user) : envd.connect({ pid }, { user });

  const { sandboxID } = sandbox;
  using _alive = keepAlive(client, sandboxID);
  try {
    const end = await runTerminal({ envd, events, user, detachByte, redraws: pid !== undefined });
    const again = `svc connect ${sandboxID}${session === "main" ? "" : ` --session ${session}`}`;
    if (end.isDetached) remark(`\nleft session ${session} open; ${again} returns to it`);
    return end;
  } catch (error) {
    const failure = asFailure(error);
    if (failure.name !== "SERVER_UNREACHABLE") throw error;
    return fail(failure.name, `${failure.message}; if the sandbox still lives, svc connect ${sandboxID} returns to the shell`);
  } finally {
    envd.close();
  }
}

/** Starts bash as a login shell, or sh if the image has no bash. */
async function* startShell(envd: EnvdClient, tag: string, user: string | undefined): AsyncGenerator<ProcessEvent> {
  const terminal = { envs: terminalEnvironment(), pty: terminalSize(), tag, user };
  let hasStarted = false;
  try {
    for await (const event of envd.start({ ...terminal, cmd: "/bin/bash", args: ["-i", "-l"] })) {
      hasStarted = true;
      yield event;
    }
  } catch (error) {
    const { name, message } = asFailure(error);
    const isMissing = name === "PROCESS_NOT_FOUND" || (name === "INVALID_REQUEST" && /no such file|not found/i.test(message));
    if (hasStarted || !isMissing) throw error;
    yield* envd.start({ ...terminal, cmd: "/bin/sh", args: ["-i", "-l"] });
  }
}

function tagOf(session: string): string {
  return `svc-terminal-${session}`;
}

function freeName(base: string, open: ReadonlyMap<string | undefined, number>): string {
  for (let number = 1; number <= MAX_SESSIONS; number++) {
    const name = number === 1 ? base : `${base}-${number}`;
    if (!open.has(tagOf(name))) return name;
  }
  return fail("TOO_MANY_REQUESTS", `${MAX_SESSIONS} sessions named ${base} are open already`);
}
