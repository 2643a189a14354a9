// The pods of a selector as engines: which of them run, at which address, and what their annotations add.
import { z } from "zod";
import type { Log } from "../log.ts";
import { type NamedEntry, named, readEntry } from "./engine-entry.ts";

const pod = z.object({
  metadata: z.object({ name: z.string(), deletionTimestamp: z.string().nullish(), annotations: z.record(z.string(), z.string()).nullish() }),
  status: z.object({ phase: z.string().nullish(), podIP: z.string().nullish() }).nullish(),
});
const event = z.object({ type: z.enum(["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]), object: z.unknown() });
/** An annotation with this name holds members of an entry as JSON. */
const ANNOTATION = "svc-engine";

export type PodPorts = { readonly port: number; readonly events: number | undefined; readonly replay: number | undefined };

export class Pods {
  readonly #ports: PodPorts;
  readonly #log: Log;
  #entries = new Map<string, NamedEntry>();

  constructor(ports: PodPorts, log: Log) {
    this.#ports = ports;
    this.#log = log;
  }

  entries(): NamedEntry[] {
    return [...this.#entries.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  }

  replace(items: readonly unknown[]): void {
    this.#entries = new Map();
    for (const item of items) this.#put(item);
  }

  /** False if the event changes nothing. */
  take(input: unknown): boolean {
    const parsed = event.safeParse(input);
    if (!parsed.success || parsed.data.type === "BOOKMARK") return false;
    const { type, object } = parsed.data;
    if (type === "DELETED") return this.#entries.delete(pod.safeParse(object).data?.metadata.name ?? "");
    return this.#put(object);
  }

  #put(item: unknown): boolean {
    const parsed = pod.safeParse(item);
    if (!parsed.success) return false;
    const { metadata, status } = parsed.data;
    const address = status?.podIP ?? "";
    // A pod that is being deleted still answers, but takes no new work.
    if (status?.phase !== "Running" || address === "" || metadata.deletionTimestamp != null) return this.#entries.delete(metadata.name);
    const host = address.includes(":") ? `[${address}]` : address;
    const { port, events, replay } = this.#ports;
    const ports = { ...(events === undefined ? {} : { events_port: events }), ...(replay === undefined ? {} : { replay_port: replay }) };
    const annotation = metadata.annotations?.[ANNOTATION];
    try {
      const more = annotation === undefined ? {} : (JSON.parse(annotation) as object);
      this.#entries.set(metadata.name, named(readEntry({ url: `http://${host}:${port}`, ...ports, ...more }, `annotation ${ANNOTATION}`), metadata.name));
    } catch (error) {
      this.#log.warn({ pod: metadata.name, reason: (error as Error).message }, "a pod's annotation cannot be read");
      this.#entries.set(metadata.name, named({ url: `http://${host}:${port}`, ...ports }, metadata.name));
    }
    return true;
  }
}
