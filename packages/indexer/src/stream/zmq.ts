// The number of publishers that this process can hold, and the maximum size of their messages.
import { openFiles } from "@svc/kit/open-files.ts";

/** Each registration has a connection, one for replays, and at times one to another master. */
const DESCRIPTORS_EACH = 3;
/** Descriptors that remain for files, pipes and the runtime. */
const RESERVED_DESCRIPTORS = 128;
const MAX_PUBLISHERS = 4096;
const MAX_CONNECTIONS = 8192;

/** A larger message ends its connection; the doctor names it. */
export const MAX_MESSAGE_BYTES = 64 * 1024 * 1024;

export type Limits = { readonly publishers: number; readonly connections: number; readonly descriptors: number };

/** Divides the process's limit of open files: a quarter for clients, the rest for publishers. */
export function limitsOf(descriptors: number = openFiles()): Limits {
  const free = Math.max(16, descriptors - RESERVED_DESCRIPTORS);
  const connections = Math.min(MAX_CONNECTIONS, Math.floor(free / 4));
  return { connections, publishers: Math.min(MAX_PUBLISHERS, Math.floor((free - connections) / DESCRIPTORS_EACH)), descriptors };
}
