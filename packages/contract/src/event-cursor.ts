// The position of a reader of events: one id on a node, one id for each node behind a gateway.

/** `12` on a node; `NODE:12.NODE:7` behind a gateway, which stores no events itself. */
export type EventCursor = string;

/** Returns the ids by node; "" stands for a node without a name. Undefined if the text is not a cursor. */
export function parseCursor(text: string): Map<string, number> | undefined {
  const places = new Map<string, number>();
  for (const part of text.split(".")) {
    const [, node = "", id] = /^(?:([a-z0-9][a-z0-9-]{0,62}):)?(\d{1,15})$/.exec(part) ?? [];
    if (id === undefined || places.size >= MAX_NODES) return undefined;
    places.set(node, Number(id));
  }
  return places;
}

const MAX_NODES = 10_000;

export function formatCursor(places: ReadonlyMap<string, number>): EventCursor {
  return [...places].map(([node, id]) => (node === "" ? String(id) : `${node}:${id}`)).join(".");
}

/** Returns true if a reader at `cursor` has seen everything up to `goal`. */
export function hasReached(cursor: EventCursor, goal: EventCursor): boolean {
  const places = parseCursor(cursor);
  return [...(parseCursor(goal) ?? [])].every(([node, id]) => (places?.get(node) ?? 0) >= id);
}
