// Handles the core's events: requests for TypeScript, holders to probe, recovery, and trouble with the log.
import type { Log } from "@svc/kit/log.ts";
import type { Denials } from "../access/denials.ts";
import type { Ha } from "../ha/ha.ts";
import { names } from "../rpc/native-names.ts";
import type { State } from "./http.ts";
import type { HttpConnections } from "./http-connections.ts";
import type { Members } from "./members.ts";
import { coreMetrics, type NativeMaster, type OnEvent } from "./native.ts";
import type { Probes } from "./probes.ts";
import type { Publisher } from "./publisher.ts";
import type { Rpc } from "./rpc.ts";

export type Recovery = { ms: number; records: number; objects: number; forgotten: number; tornBytes: number; damaged: string[] };

/** The state that HTTP shows, derived from the core's events. */
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
    const full = this.#state.serving && coreMetrics(native).logFull === 1;
    return full ? { ...this.#state, trouble: this.#state.trouble || "the disk of the log is full: changes are refused, reads continue" } : this.#state;
  }

  whenDurable(native: NativeMaster): Promise<void> {
    return new Promise((resolve) => {
      this.#durable.push(resolve);
      native.reportDurable();
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

export type EventParts = {
  readonly rpc: Rpc;
  readonly probes: Probes;
  readonly watch: Watch;
  readonly publisher: Publisher | undefined;
  readonly http: HttpConnections;
  readonly denials: Denials;
  readonly members: Members;
  /** Set if this master is one of several. */
  readonly ha: Ha | undefined;
  readonly log: Log;
};

export function eventHandler({ rpc, probes, watch, publisher, http, denials, members, ha, log }: EventParts): OnEvent {
  return (kind, id, seq, functionID, body) => {
    switch (names.events[kind]) {
      case "request":
      case "unknown":
        rpc.onRequest(id, seq, functionID, body, names.events[kind] === "request");
        return;
      case "malformed":
        log.warn({ bytes: body.toString() }, "an RPC frame is larger than store.max_frame_bytes: its connection was closed");
        return;
      case "probe":
        probes.suspect(id, body.toString("latin1"));
        return;
      case "client":
        if (!members.hasLeft(id, body.toString() === "lost")) log.warn({ client: id }, `a client is ${body.toString()}`);
        return;
      case "recovered": {
        const recovery = JSON.parse(body.toString()) as Recovery;
        complain(recovery, log);
        watch.onRecovered(recovery);
        ha?.onServing();
        return;
      }
      case "batches":
        publisher?.publish();
        return;
      case "http":
        http.adopt(id, body);
        return;
      case "denied":
        denials.note(body.toString(), "RPC calls of a client that showed no key were refused", id);
        return;
      case "durable":
        watch.onDurable();
        return;
      case "standing":
        complain(JSON.parse(body.toString()) as Recovery, log);
        ha?.onStanding();
        return;
      case "peer":
        ha?.onPeer(id, body.toString());
        return;
      case "caughtUp":
        ha?.onCaughtUp(id);
        return;
      case "peerLost":
        ha?.onPeerLost(id, body.toString());
        return;
      case "followed":
        ha?.onFollowed(body.toString(), id === 1);
        return;
      case "followLost":
        ha?.onFollowLost(body.toString());
        return;
      case "handover":
        ha?.onHandover();
        return;
      case "trouble":
        log.error({ reason: body.toString() }, "a problem with the log");
        watch.onTrouble(body.toString(), id === 1);
    }
  };
}

function complain(recovery: Recovery, log: Log): void {
  if (recovery.damaged.length === 0) return;
  log.error(recovery, "files of the log are damaged: objects that they may have removed were dropped, and the files are quarantined as NAME.damaged");
}
