// Connects to a unix socket whose name lies inside a sandbox, where untrusted code may put anything in its place.
import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { fail } from "@svc/contract/failures.ts";

/** Copied from the kernel's headers; Node does not export it. */
const O_PATH = 0o10000000;

/**
 * Does not follow a symbolic link in the last component: root inside may replace the socket by a link, which would resolve on the host. /.svc
 * itself is a mount point, so it can be neither renamed nor replaced.
 */
export function dialUnix(path: string, options: object = {}): Socket {
  let fd: number;
  try {
    fd = openSync(path, O_PATH | constants.O_NOFOLLOW);
  } catch (error) {
    fail("PORT_NOT_OPEN", `no socket at ${path}`, { cause: error });
  }
  try {
    if (!fstatSync(fd).isSocket()) fail("PORT_NOT_OPEN", `${path} is not a socket any more`);
    // libuv connects synchronously, before the descriptor is closed.
    return connect({ ...options, path: `/proc/self/fd/${fd}` });
  } finally {
    closeSync(fd);
  }
}
