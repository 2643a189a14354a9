// Probes a holder with one connect to its endpoint; while that fails, new objects and readers are kept away from it.
import { connect } from "node:net";
import type { NativeMaster } from "./native.ts";

/** Bounds the endpoints that are probed at once; further ones are probed when they are suspected again. */
const MAX_PROBES = 64;
const AGAIN_MS = 1000;

export type Probes = { suspect(segment: number, endpoint: string): void; close(): void };

export function openProbes(native: NativeMaster, timeoutMs: number, onFound: (endpoint: string, reached: boolean) => void): Probes {
  /** Segments whose endpoint was reached before: only for these does a failed connect mean that the holder is gone. */
  const reachable = new Set<number>();
  const failing = new Map<number, NodeJS.Timeout>();
  const probing = new Set<number>();
  let ended = false;

  function suspect(segment: number, given: string): void {
    // The endpoint of a NOF segment is the engine that serves it.
    const endpoint = /^nvmeof\/(.+)\/[^/]+$/.exec(given)?.[1] ?? given;
    const at = endpoint.lastIndexOf(":");
    const port = Number(endpoint.slice(at + 1));
    if (at <= 0 || !(port > 0 && port < 65_536) || probing.has(segment) || probing.size >= MAX_PROBES) return;
    probing.add(segment);
    const socket = connect({ host: endpoint.slice(0, at).replace(/^\[|\]$/g, ""), port });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error("timed out")));
    socket.once("connect", () => end(true));
    socket.once("error", () => end(false));

    function end(reached: boolean): void {
      socket.destroy();
      if (!probing.delete(segment)) return;
      const wasFailing = failing.has(segment);
      clearTimeout(failing.get(segment));
      failing.delete(segment);
      if (reached) reachable.add(segment);
      else if (!reachable.has(segment)) return;
      // The segment was unmounted meanwhile, so no reader is sent there any more.
      if (ended || !native.probed(segment, reached)) {
        reachable.delete(segment);
        return;
      }
      if (reached === wasFailing) onFound(endpoint, reached);
      if (!reached) failing.set(segment, setTimeout(() => suspect(segment, endpoint), AGAIN_MS).unref());
    }
  }

  return {
    suspect,
    close() {
      ended = true;
      for (const timer of failing.values()) clearTimeout(timer);
      failing.clear();
    },
  };
}
