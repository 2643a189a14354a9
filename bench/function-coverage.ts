// Lists the functions of the tree that ran in a process since the last call, through an inspector session in this process or another one's
// inspector port.
import { once } from "node:events";
import { Session } from "node:inspector/promises";
import { pathToFileURL } from "node:url";

const SOURCES = `${pathToFileURL(`${import.meta.dirname}/../packages`).href}/`;

type Coverage = {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly { readonly functionName: string; readonly ranges: readonly { readonly startOffset: number; readonly count: number }[] }[];
  }[];
};

/** Returns the functions that ran since the last call, as file#offset. */
export type Look = () => Promise<Set<string>>;

/** An inspected process does not end while a debugger is connected, so its look is closed before the process is stopped. */
export type RemoteLook = Look & Disposable;

/** Returns the address that a process started with --inspect has printed. */
export function inspectorOf(log: string): string {
  return /listening on (ws:\S+)/.exec(log)?.[1] ?? "";
}

export async function lookInto(url: string): Promise<RemoteLook> {
  const socket = new WebSocket(url);
  await once(socket, "open");
  let id = 0;
  const pending = new Map<number, (result: unknown) => void>();
  socket.addEventListener("message", ({ data }) => {
    const { id: of, result } = JSON.parse(String(data)) as { id?: number; result: unknown };
    pending.get(of ?? 0)?.(result);
    pending.delete(of ?? 0);
  });
  const ask = (method: string, params: object = {}) =>
    new Promise<unknown>((resolve) => {
      pending.set(++id, resolve);
      socket.send(JSON.stringify({ id, method, params }));
    });
  await ask("Profiler.enable");
  await ask("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  const look = async () => ranIn((await ask("Profiler.takePreciseCoverage")) as Coverage);
  return Object.assign(look, { [Symbol.dispose]: () => socket.close() });
}

export async function lookHere(): Promise<Look> {
  const session = new Session();
  session.connect();
  await session.post("Profiler.enable");
  await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
  return async () => ranIn((await session.post("Profiler.takePreciseCoverage")) as Coverage);
}

function ranIn({ result }: Coverage): Set<string> {
  const ran = new Set<string>();
  for (const { url: file, functions } of result) {
    if (!file.startsWith(SOURCES)) continue;
    for (const { ranges } of functions) if ((ranges[0]?.count ?? 0) > 0) ran.add(`${file.slice(SOURCES.length)}#${ranges[0]?.startOffset}`);
  }
  return ran;
}
