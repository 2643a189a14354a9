// What the core tells: requests for the script, holders to probe, recovery, and trouble with the log.
import type { Log } from "@svc/kit/log.ts";
import type { State } from "./http.ts";
import { eventKinds, figuresOf, type NativeMaster, type OnEvent } from "./native.ts";
import type { Probes } from "./probes.ts";
import type { Rpc } from "./rpc.ts";

export type Recovery = { ms: number; records: number; objects: number; forgotten: number; tornBytes: number; damaged: string[] };

/** The state that HTTP shows, as the core's events make it. */
export class Watch {
  #state: State = { serving: false, trouble: "", damaged: [] };
  readonly #durable: (() => void)[] = [];
  readonly recovered: Promise<Recovery>;
  #resolve: (recovery: Recovery) => void = () => undefined;
  #reject: (error: Error) => void = () => undefined;

  constructor() {
    this.recovered = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get state(): State {
    return this.#state;
  }

  stateWith(native: NativeMaster): State {
    const full = this.#state.serving && figuresOf(native).logFull === 1;
    return full ? { ...this.#state, trouble: this.#state.trouble || "the disk of the log is full: changes are refused, reads go on" } : this.#state;
  }

  whenDurable(native: NativeMaster): Promise<void> {
    return new Promise((resolve) => {
      this.#durable.push(resolve);
      native.tellDurable();
    });
  }

  onDurable(): void {
    this.#durable.shift()?.();
  }

  onRecovered(recovery: Recovery): void {
    this.#state = { ...this.#state, serving: true, damaged: recovery.damaged };
    this.#resolve(recovery);
  }

  onTrouble(message: string, isFatal: boolean): void {
    if (isFatal) this.#reject(new Error(message));
    else this.#state = { ...this.#state, trouble: message.endsWith("again") ? "" : message };
  }
}

export type EventParts = { readonly rpc: Rpc; readonly probes: Probes; readonly watch: Watch; readonly log: Log };

export function eventHandler({ rpc, probes, watch, log }: EventParts): OnEvent {
  return (kind, id, seq, functionID, body) => {
    switch (eventKinds[kind]) {
      case "request":
      case "unknown":
        rpc.onRequest(id, seq, functionID, body, eventKinds[kind] === "request");
        return;
      case "malformed":
        log.warn({ bytes: body.toString() }, "an RPC frame is larger than store.max_frame_bytes: its connection was closed");
        return;
      case "probe":
        probes.suspect(id, body.toString("latin1"));
        return;
      case "client":
        log.warn({ client: id }, `a client is ${body.toString()}`);
        return;
      case "recovered": {
        const recovery = JSON.parse(body.toString()) as Recovery;
        if (recovery.damaged.length > 0)
          log.error(recovery, "files of the log are damaged: objects whose fate they held were forgotten, and the files are set aside as NAME.damaged");
        watch.onRecovered(recovery);
        return;
      }
      case "durable":
        watch.onDurable();
        return;
      case "trouble":
        log.error({ reason: body.toString() }, "trouble with the log");
        watch.onTrouble(body.toString(), id === 1);
    }
  };
}
