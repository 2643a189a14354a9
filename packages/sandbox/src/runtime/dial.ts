// Opens a connection to a unix socket whose name lies inside a sandbox, where code of strangers may put anything in its place.
import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { fail } from "@svc/contract/failures.ts";

/** From the kernel's headers; Node does not name it. */
const O_PATH = 0o10000000;

/**
 * Follows no symbolic link in the last place: root inside may replace the socket by one, and a name followed from here would
 * resolve on the host. /.svc itself is a mount point, so it can be neither renamed nor replaced.
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
    // libuv connects at once, before the descriptor is closed.
    return connect({ ...options, path: `/proc/self/fd/${fd}` });
  } finally {
    closeSync(fd);
  }
}
