// Which room of a package may import which, and whether files import each other in a circle.
import { join } from "node:path";
import { packageOf } from "./imports.ts";

/**
 * The rooms (folders below `src`) of each package that has more than three, from the ground up: a room imports only rooms named
 * before it. What lies in `src` itself may import all of them, and none of them imports it.
 */
const rooms: Readonly<Record<string, readonly string[]>> = {
  sandbox: ["egress", "dns", "network", "runtime", "agent", "records", "proxy", "observe", "template", "snapshot-transfer", "cluster", "doctor", "node"],
  gateway: ["place", "members", "proxy", "serve"],
  store: ["access", "rpc", "http", "files", "metadata", "ha", "master", "client", "service", "cli"],
  "store-admin": ["http", "metadata", "masters", "migrations", "cold"],
};
const MOST_WITHOUT_ORDER = 3;

/** Folder below `src`; "" for a file in `src` itself, undefined for any other. */
function roomOf(file: string): string | undefined {
  const [, , source, ...rest] = file.split("/");
  if (packageOf(file) === undefined || source !== "src") return undefined;
  return rest.length > 1 ? rest[0] : "";
}

/** The file that an import names, where it is one of the tree. */
export function targetOf(file: string, target: string): string | undefined {
  if (target.startsWith(".")) return join(file, "..", target);
  const [, name, path] = /^@svc\/([^/]+)\/(.+)$/.exec(target) ?? [];
  return name === undefined || path === undefined ? undefined : `packages/${name}/src/${path}`;
}

/** What is wrong about an import between two rooms of one package, if anything. */
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

/** Rooms that the table lacks, or names though they are gone. */
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

/** Groups of two or more nodes of a graph that lead to each other. */
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
