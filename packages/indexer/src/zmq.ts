// How many publishers this process can hold, and how much one of their messages may have.
import { readFileSync } from "node:fs";

/** A registration's connection, a replay's, and now and then another master's. */
const DESCRIPTORS_EACH = 3;
/** Left to files, pipes and the runtime. */
const RESERVED_DESCRIPTORS = 128;
const MAX_PUBLISHERS = 4096;
const MAX_CONNECTIONS = 8192;

/** Larger messages end the connection they came by; the doctor names it. */
export const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

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
