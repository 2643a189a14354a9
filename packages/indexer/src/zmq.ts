// ZMQ's shared side: the context with room for every publisher, how much a message may have, and how many publishers this process can hold.
import { readFileSync } from "node:fs";
import { Context } from "zeromq";

/** A registration's sockets: SUB, the two ends of its monitor, and a replay's. */
const SOCKETS_EACH = 4;
/** Their mailboxes and connections. */
const DESCRIPTORS_EACH = 6;
/** Left to files, pipes and the runtime. */
const RESERVED_DESCRIPTORS = 128;
const MAX_PUBLISHERS = 4096;
const MAX_CONNECTIONS = 8192;

/** Larger messages end the connection they came by; the doctor names it. */
export const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;
/** Messages of one publisher that wait in its socket; more wait at the publisher. */
export const RECEIVE_HIGH_WATER_MARK = 64;

export const context = new Context({ maxSockets: SOCKETS_EACH * MAX_PUBLISHERS + SOCKETS_EACH });

export type Limits = { readonly publishers: number; readonly connections: number; readonly descriptors: number };

/** What fits under the process's limit of open files: a quarter for clients, the rest for publishers. */
export function limitsOf(descriptors: number = openFiles()): Limits {
  const free = Math.max(16, descriptors - RESERVED_DESCRIPTORS);
  const connections = Math.min(MAX_CONNECTIONS, Math.floor(free / 4));
  return { connections, publishers: Math.min(MAX_PUBLISHERS, Math.floor((free - connections) / DESCRIPTORS_EACH)), descriptors };
}

function openFiles(): number {
  try {
    const [, soft] = /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return soft === undefined || soft === "unlimited" ? 1 << 20 : Number(soft);
  } catch {
    return 1024;
  }
}
