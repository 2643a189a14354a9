// How far a node's clock may differ from its deployment's, and the message for a node whose clock differs more.

/** A node whose clock differs by more than this accepts no new sandboxes. */
export const CLOCK_LIMIT_MS = 2_000;

/** The reason why such a node is not ready. */
export function clockReason(skewMs: number): string {
  const seconds = (Math.abs(skewMs) / 1000).toFixed(1);
  return `its clock is ${seconds} s ${skewMs > 0 ? "ahead of" : "behind"} the deployment's (etcd and the other nodes), and the maximum is ${CLOCK_LIMIT_MS / 1000} s: set the machine's clock, for example by NTP`;
}
