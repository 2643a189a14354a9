// Runs the thread that opens TLS for hosts with rules, and dials through egress proxies: starts it at first need, answers its questions, and restarts it when it dies.
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { Log } from "@svc/kit/log.ts";
import type { FromIntercept, InterceptWorkerData, Note, QuestionKind, Questions, ToIntercept } from "./messages.ts";

/** The limit of the thread's heap; buffers of sockets are outside. */
const MAX_HEAP_MB = 512;
const MIN_RESTART_MS = 50;
const MAX_RESTART_MS = 10_000;
const CLOSE_MS = 2_000;

/** Where the thread listens: for HTTPS to hosts with rules, and for connections of sandboxes with an egress proxy. */
export type Ports = { readonly port: number; readonly tunnelPort: number };

export type InterceptOptions = {
  readonly address: string;
  /** The port of the last run. */
  readonly port: number;
  readonly tunnelPort: number;
  readonly authorities: string;
  readonly log: Log;
  readonly answer: { readonly [Kind in QuestionKind]: (ask: Questions[Kind]["ask"]) => Promise<Questions[Kind]["answer"]> };
  readonly onNote: (note: Note) => void;
  /** Called with the ports of a thread that starts, before any rule needs them. */
  readonly onPorts: (ports: Ports) => Promise<void>;
};

export interface Intercept {
  /** Resolves when the thread runs and the firewall knows its port. */
  started(): Promise<void>;
  /** Resolves when the connections of this sandbox that its policy no longer allows have ended. */
  check(sandbox: string): Promise<void>;
  forget(sandbox: string): void;
  /** Values that rules insert have changed. */
  changed(): void;
  close(): Promise<void>;
}

export function openIntercept(options: InterceptOptions): Intercept {
  const { log } = options;
  const waiting = new Map<number, () => void>();
  let nextCall = 1;
  let ports: Ports = { port: options.port, tunnelPort: options.tunnelPort };
  let closed = false;
  let worker: Worker | undefined;
  let starting: Promise<void> | undefined;
  let restartMs = MIN_RESTART_MS;

  const send = (message: ToIntercept): void => worker?.postMessage(message);

  async function start(): Promise<void> {
    const { address, authorities } = options;
    const data: InterceptWorkerData = { address, ...ports, authorities };
    const begun = new Worker(new URL("./worker.ts", import.meta.url), {
      workerData: data,
      name: "egress",
      // The thread must not see the key and the seed (I25): it gets the values of one request, and certificates without their authority's key.
      env: {},
      execArgv: ["--disable-warning=ExperimentalWarning"],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    begun.on("error", (error) => log.error({ err: error }, "the thread that applies rules to HTTPS requests failed"));
    const ended = once(begun, "exit").then(() => fail("INTERNAL", "the thread that applies rules to HTTPS requests ended at its start"));
    const [ready] = (await Promise.race([once(begun, "message"), ended])) as [FromIntercept & { say: "ready" }];
    ended.catch(() => {});
    begun.unref();
    begun.on("message", (message: FromIntercept) => void onMessage(message));
    const startedMs = performance.now();
    begun.once("exit", () => {
      worker = undefined;
      starting = undefined;
      for (const done of waiting.values()) done();
      waiting.clear();
      if (performance.now() - startedMs > MAX_RESTART_MS) restartMs = MIN_RESTART_MS;
      if (!closed) void startAgain();
    });
    ports = { port: ready.port, tunnelPort: ready.tunnelPort };
    await options.onPorts(ports);
    worker = begun;
  }

  async function startAgain(): Promise<void> {
    while (!closed && starting === undefined) {
      await sleep(restartMs, undefined, { ref: false });
      restartMs = Math.min(restartMs * 2, MAX_RESTART_MS);
      if (closed || starting !== undefined) return;
      try {
        await started();
        log.warn("the thread that applies rules to HTTPS requests was restarted");
      } catch (error) {
        log.error({ err: error, restartMs }, "hosts with rules and egress proxies cannot be reached at the moment: their thread cannot be started");
      }
    }
  }

  function started(): Promise<void> {
    if (closed) fail("SHUTTING_DOWN", "the networks are being closed");
    starting ??= start().catch((error: unknown) => {
      starting = undefined;
      throw error;
    });
    return starting;
  }

  async function onMessage(message: FromIntercept): Promise<void> {
    switch (message.say) {
      case "note":
        return options.onNote(message.note);
      case "checked":
        waiting.get(message.call)?.();
        return void waiting.delete(message.call);
      case "question": {
        const { call } = message;
        try {
          send({ say: "answer", call, answer: await answered(message) });
        } catch (error) {
          send({ say: "problem", call, problem: asFailure(error).message });
        }
        return;
      }
      default:
        return;
    }
  }

  function answered(message: FromIntercept & { say: "question" }): Promise<unknown> {
    switch (message.kind) {
      case "route":
        return options.answer.route(message.ask);
      case "tunnel":
        return options.answer.tunnel(message.ask);
      case "certificate":
        return options.answer.certificate(message.ask);
      case "headers":
        return options.answer.headers(message.ask);
    }
  }

  return {
    started,
    check(sandbox) {
      if (worker === undefined) return Promise.resolve();
      const call = nextCall++;
      const done = new Promise<void>((resolve) => waiting.set(call, resolve));
      send({ say: "check", call, sandbox });
      return done;
    },
    forget: (sandbox) => send({ say: "forget", sandbox }),
    changed: () => send({ say: "changed" }),
    async close() {
      closed = true;
      await starting?.catch(() => undefined);
      const ending = worker;
      if (ending === undefined) return;
      const ended = once(ending, "exit");
      ending.postMessage({ say: "close" } satisfies ToIntercept);
      const timer = setTimeout(() => void ending.terminate(), CLOSE_MS);
      await ended;
      clearTimeout(timer);
    },
  };
}
