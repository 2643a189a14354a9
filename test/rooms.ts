// The order of the layers (folders) of a package, and the search for import cycles.
import { join } from "node:path";
import { packageOf } from "./imports.ts";

/**
 * The layers (folders below `src`) of each package with more than four, from the bottom up: a layer imports only layers named before it.
 * Files in `src` itself may import all of them, and no layer imports them.
 */
const rooms: Readonly<Record<string, readonly string[]>> = {
  sandbox: ["egress", "dns", "network", "runtime", "agent", "records", "proxy", "observe", "template", "snapshot-transfer", "cluster", "doctor", "node"],
  gateway: ["place", "members", "proxy", "serve"],
  store: ["access", "rpc", "http", "files", "metadata", "ha", "master", "client", "service", "cli"],
  "store-admin": ["http", "metadata", "masters", "migrations", "cold"],
};
const MOST_WITHOUT_ORDER = 4;

/** Returns the folder below `src`; "" for a file in `src` itself, undefined for any other. */
function roomOf(file: string): string | undefined {
  const [, , source, ...rest] = file.split("/");
  if (packageOf(file) === undefined || source !== "src") return undefined;
  return rest.length > 1 ? rest[0] : "";
}

/** Returns the file that an import names, if it belongs to the tree. */
export function targetOf(file: string, target: string): string | undefined {
  if (target.startsWith(".")) return join(file, "..", target);
  const [, name, path] = /^@svc\/([^/]+)\/(.+)$/.exec(target) ?? [];
  return name === undefined || path === undefined ? undefined : `packages/${name}/src/${path}`;
}

/** Returns the fault of an import between two layers of one package, if there is one. */
export function climb(file: string, target: string): string | undefined {
  // I31
  const [from, to] = [roomOf(file), roomOf(target)];
  const name = packageOf(file) ?? "";
  const order = rooms[name];
  if (order === undefined || from === undefined || to === undefined || from === to || name !== packageOf(target)) return undefined;
  if (from === "") return undefined;
  const [above, below] = [order.indexOf(from), order.indexOf(to)];
  return above > below && below !== -1 ? undefined : `${file} imports ${target}: '${from}' stands below '${to === "" ? "src" : to}'`;
}

/** Returns layers that the table lacks, and those it names that no longer exist. */
export function undeclaredRooms(files: readonly string[]): readonly string[] {
  const found = new Map<string, Set<string>>();
  for (const file of files) {
    const [name, room] = [packageOf(file), roomOf(file)];
    if (name === undefined || room === undefined || room === "") continue;
    found.set(name, (found.get(name) ?? new Set()).add(room));
  }
  return [...found].flatMap(([name, there]) => {
    const order = rooms[name];
    if (order === undefined) return there.size > MOST_WITHOUT_ORDER ? [`${name}: ${[...there].join(", ")}: their order is not declared in test/rooms.ts`] : [];
    const missing = [...there].filter((room) => !order.includes(room)).map((room) => `${name}/${room}: declare its place in test/rooms.ts`);
    return [...missing, ...order.filter((room) => !there.has(room)).map((room) => `${name}/${room} is declared in test/rooms.ts and is not there`)];
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
