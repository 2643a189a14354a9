// Ports that several publishers connect to: each message goes to the registration that its topic names, kv@POD@MODEL.
import type { Peer } from "./peer.ts";
import { type SocketOptions, ZmtpSocket } from "./socket.ts";

/** The number of messages without a receiver that one slice skips. */
const MOST_STRAYS = 8;
const MAX_TOPIC_CHARS = 300;

export type LiveSocket = Pick<ZmtpSocket, "connected" | "open" | "close" | "front" | "shift">;
export type Member = SocketOptions & {
  readonly instance: string;
  readonly model: string;
  /** A message whose topic names another publisher, while none of that name is registered here. */
  onStray(topic: string): void;
};

export class Listeners {
  readonly #open = new Map<string, Listener>();

  /** The socket of one registration at an address that publishers connect to. */
  join(address: string, member: Member): LiveSocket {
    const listeners = this.#open;
    return {
      open: async () => {
        const known = this.#open.get(address);
        if (known !== undefined) return known.add(member);
        const listener = new Listener(member, () => this.#open.delete(address));
        this.#open.set(address, listener);
        try {
          await listener.socket.open();
        } catch (error) {
          this.#open.delete(address);
          throw error;
        }
      },
      close: () => this.#open.get(address)?.remove(member),
      front: () => this.#open.get(address)?.front(member),
      shift: () => this.#open.get(address)?.shift(member),
      get connected() {
        return listeners.get(address)?.connects(member) ?? false;
      },
    };
  }
}

class Listener {
  readonly socket: ZmtpSocket;
  readonly #members = new Set<Member>();
  readonly #ready = new Set<Peer>();
  /** The members that a connection's messages were for. */
  readonly #served = new Map<Peer, Set<Member>>();
  readonly #current = new Map<Member, Peer>();
  readonly #onEmpty: () => void;

  constructor(first: Member, onEmpty: () => void) {
    this.#members.add(first);
    this.#onEmpty = onEmpty;
    this.socket = new ZmtpSocket({
      ...first,
      onReady: (peer) => {
        this.#ready.add(peer);
        // With one registration, a connection is its publisher's until a topic says otherwise.
        if (this.#members.size === 1) for (const member of this.#members) member.onReady?.(peer);
      },
      onReadable: () => {
        for (const member of [...this.#members]) member.onReadable();
      },
      onLost: (peer, why, broken) => {
        const served = this.#served.get(peer) ?? (this.#members.size === 1 ? this.#members : new Set<Member>());
        this.#ready.delete(peer);
        this.#served.delete(peer);
        for (const member of served) member.onLost?.(peer, why, broken);
      },
      onFailed: (address, why, broken) => {
        for (const member of this.#members) member.onFailed?.(address, why, broken);
      },
    });
  }

  /** @throws Error if the topic of another member names this one as well. */
  add(member: Member): void {
    for (const other of this.#members)
      if (other.instance === member.instance && other.model === member.model)
        throw new Error(`the address is already in use for ${member.instance} and ${member.model}, and topics tell no ranks apart`);
    this.#members.add(member);
    setImmediate(() => member.onReadable());
  }

  remove(member: Member): void {
    if (!this.#members.delete(member)) return;
    this.#current.delete(member);
    for (const served of this.#served.values()) served.delete(member);
    if (this.#members.size > 0) return;
    this.socket.close();
    this.#onEmpty();
  }

  connects(member: Member): boolean {
    let wasServed = false;
    for (const peer of this.#ready) {
      if (!peer.isReady) continue;
      const served = this.#served.get(peer);
      if (served?.has(member)) return true;
      if (served === undefined) wasServed = true;
    }
    // A publisher that has said nothing yet may be this one.
    return wasServed;
  }

  front(member: Member): readonly Buffer[] | undefined {
    let strays = 0;
    for (const peer of this.socket.readable) {
      for (;;) {
        const frames = peer.front();
        if (frames === undefined) {
          this.socket.exhausted(peer);
          break;
        }
        const topic = frames[0]?.toString("latin1", 0, MAX_TOPIC_CHARS) ?? "";
        const owner = this.#ownerOf(topic);
        if (owner !== undefined) this.#serve(peer, owner);
        if (owner === member) {
          this.#current.set(member, peer);
          return frames;
        }
        if (owner !== undefined) {
          setImmediate(() => owner.onReadable());
          break;
        }
        if (!this.#served.has(peer)) this.#served.set(peer, new Set());
        for (const one of this.#members) one.onStray(topic);
        peer.shift();
        if (++strays < MOST_STRAYS) continue;
        setImmediate(() => member.onReadable());
        return undefined;
      }
    }
    return undefined;
  }

  shift(member: Member): void {
    const peer = this.#current.get(member);
    this.#current.delete(member);
    if (peer !== undefined) this.socket.shift(peer);
  }

  #serve(peer: Peer, owner: Member): void {
    const served = this.#served.get(peer);
    if (served?.has(owner)) return;
    if (served === undefined) this.#served.set(peer, new Set([owner]));
    else served.add(owner);
    if (this.#members.size > 1) owner.onReady?.(peer);
  }

  /** A topic of another form names no one: it is the only member's. */
  #ownerOf(topic: string): Member | undefined {
    const [, pod = "", model = ""] = /^kv@([^@]+)@(.+)$/s.exec(topic) ?? [];
    if (pod === "") return this.#members.size === 1 ? [...this.#members][0] : undefined;
    const host = pod.replace(/:\d{1,5}$/, "");
    for (const member of this.#members) if (member.model === model && (member.instance === pod || member.instance === host)) return member;
    return undefined;
  }
}
