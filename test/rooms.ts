// The order of the layers (folders) of a package, and the search for import cycles.
import { join } from "node:path";
import { packageOf } from "./imports.ts";

/**
 * The layers (folders below `src`) of each package with more than three, and those of a layer that has folders of its own, from the bottom
 * up: a layer imports only layers named before it. Files beside the layers may import all of them, and no layer imports these files, except
 * for the settings, which import no layer above it.
 */
const rooms: Readonly<Record<string, readonly string[]>> = {
  sandbox: [
    "egress",
    "dns",
    "intercept",
    "network",
    "runtime",
    "agent",
    "records",
    "retention",
    "volumes",
    "secrets",
    "previews",
    "proxy",
    "observe",
    "template",
    "snapshot-transfer",
    "cluster",
    "doctor",
    "backup",
    "node",
  ],
  "sandbox/node": ["supply", "verbs", "watch", "serve"],
  cli: ["output", "access", "copy", "sandbox", "template", "volume", "secret", "keys", "observe", "servers", "deployment", "shell", "sbom", "verbs"],
  indexer: ["index", "http", "registrations", "zmtp", "stream", "state", "observe", "query", "simulate", "cli"],
  kit: ["proxy", "tls", "peers", "etcd", "objects", "keys", "http", "discovery", "console"],
  gateway: ["place", "members", "proxy", "serve"],
  store: ["access", "rpc", "files", "metadata", "ha", "master", "client", "service", "cli"],
  "store-admin": ["http", "metadata", "masters", "migrations", "cold"],
};
const MOST_WITHOUT_ORDER = 3;
/** Files in `src` itself of these packages are single pieces beside the layers, which may import them; the search for cycles covers them. */
const withPieces: ReadonlySet<string> = new Set(["kit"]);
/** The folder of a key of `rooms`, with a slash at its end. */
const folderOf = (key: string) => join("packages", key.replace(/\/|$/, "/src/"), "/");

/** Returns the layer of a file below a folder; "" for a file beside the layers, undefined for any other. */
function roomOf(folder: string, file: string): string | undefined {
  if (!file.startsWith(folder)) return undefined;
  const [room = "", ...rest] = file.slice(folder.length).split("/");
  return rest.length > 0 ? room : "";
}

/** Returns the file that an import names, if it belongs to the tree. */
export function targetOf(file: string, target: string): string | undefined {
  if (target.startsWith(".")) return join(file, "..", target);
  const [, name, path] = /^@svc\/([^/]+)\/(.+)$/.exec(target) ?? [];
  return name === undefined || path === undefined ? undefined : `packages/${name}/src/${path}`;
}

/** Returns the faults of an import between two layers. */
export function climbs(file: string, target: string): readonly string[] {
  // I31
  return Object.entries(rooms).flatMap(([key, order]) => {
    const [from, to] = [roomOf(folderOf(key), file), roomOf(folderOf(key), target)];
    if (from === undefined || to === undefined || from === to || from === "" || target === join(folderOf(key), "settings.ts")) return [];
    if (to === "" && withPieces.has(key)) return [];
    const [above, below] = [order.indexOf(from), order.indexOf(to)];
    return above > below && below !== -1 ? [] : [`${file} imports ${target}: '${from}' stands below '${to === "" ? key : to}'`];
  });
}

/** Returns layers that the table lacks, and those it names that no longer exist. */
export function undeclaredRooms(files: readonly string[]): readonly string[] {
  const packages = new Set(files.flatMap((file) => packageOf(file) ?? []));
  return [...new Set([...packages, ...Object.keys(rooms)])].flatMap((key) => {
    const there = new Set(files.flatMap((file) => roomOf(folderOf(key), file) || []));
    const order = rooms[key];
    if (order === undefined) return there.size > MOST_WITHOUT_ORDER ? [`${key}: ${[...there].join(", ")}: their order is not declared in test/rooms.ts`] : [];
    const missing = [...there].filter((room) => !order.includes(room)).map((room) => `${key}/${room}: declare its place in test/rooms.ts`);
    return [...missing, ...order.filter((room) => !there.has(room)).map((room) => `${key}/${room} is declared in test/rooms.ts and is not there`)];
  });
}

/** Returns groups of two or more nodes of a graph that reach each other. */
export function circlesOf(graph: ReadonlyMap<string, readonly string[]>): readonly string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const open: string[] = [];
  const circles: string[][] = [];

  function visit(node: string): void {
    order.set(node, order.size);
    lowest.set(node, order.size - 1);
    open.push(node);
    for (const next of graph.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      if (open.includes(next)) lowest.set(node, Math.min(lowest.get(node) ?? 0, lowest.get(next) ?? 0));
    }
    if (lowest.get(node) !== order.get(node)) return;
    const circle = open.splice(open.indexOf(node));
    if (circle.length > 1) circles.push(circle.sort());
  }

  for (const node of graph.keys()) if (!order.has(node)) visit(node);
  return circles;
}
