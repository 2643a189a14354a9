// `svc nodes list|show`: the nodes behind a gateway.
import { Failure, fail } from "@svc/contract/failures.ts";
import type { ShownNode } from "@svc/contract/nodes.ts";
import { byteSize, type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark } from "../output/complain.ts";
import { localTime } from "../sandbox/list.ts";

const COLUMNS = [
  "NODE ID",
  "STATUS",
  "RUNNING",
  "PAUSED",
  "STARTING",
  "MAX",
  "MEMORY USED",
  "CPU CLASS",
  "VERSION",
  "COMMIT",
  "RUNSC",
  "SCHEMA",
  "CLOCK",
  "URL",
] as const;

type Options = AccessOptions & { output?: OutputFormat };

export function listNodes({ quiet, output, ...access }: Options & { quiet?: true }): Promise<number> {
  return withClient(access, async (client) => {
    const nodes = await ofGateway(client.nodes());
    if (quiet === true) for (const { id } of nodes) process.stdout.write(`${id}\n`);
    else if (outputFormat(output) === "json") printJSON(nodes);
    else printTable(COLUMNS, nodes.map(cellsOf));
    for (const line of differences(nodes)) remark(line);
    return 0;
  });
}

/** Members that the nodes of one deployment should agree on, with their descriptions. */
const agreed = [
  ["version", "the version of svc"],
  ["commit", "the commit that they run"],
  ["runsc", "the runsc that writes memory"],
  ["schema", "the schema of their records"],
  ["cpuClass", "the class of their processors, and memory resumes on the same class alone"],
] as const;

/** Half of the difference at which a node is no longer ready. */
const WARN_OF_CLOCK_MS = 1_000;

/** Returns a line for each member in which reachable nodes differ, and for each clock that is about to make its node unready. */
export function differences(nodes: readonly ShownNode[]): string[] {
  const clocks = nodes
    .filter(({ clockSkewMs = 0 }) => Math.abs(clockSkewMs) >= WARN_OF_CLOCK_MS)
    .map((node) => `warning: the clock of ${node.id} is off by ${clockOf(node)}; beyond 2 s a node is not ready`);
  return [...disagreements(nodes), ...clocks];
}

function disagreements(nodes: readonly ShownNode[]): string[] {
  return agreed.flatMap(([member, what]) => {
    const found = new Map<string, string[]>();
    for (const node of nodes) if (node.version !== "") found.set(node[member], [...(found.get(node[member]) ?? []), node.id]);
    if (found.size < 2) return [];
    const groups = [...found].map(([value, ids]) => `${value === "" ? "unknown" : value} on ${ids.join(", ")}`);
    return [`warning: nodes differ in ${what}: ${groups.join("; ")}`];
  });
}

export function showNode(id: string, { output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const { sandboxes, cachedBuilds, ...node } = await ofGateway(client.node(id));
    if (outputFormat(output) === "json") {
      printJSON({ ...node, sandboxes, cachedBuilds });
      return 0;
    }
    const labels = Object.entries(node.labels).map(([name, value]) => `${name}=${value}`);
    const pools = Object.entries(node.pools).map(([template, ready]) => `${template}=${ready}`);
    printTable(
      ["", ""],
      [
        ["node", node.id],
        ["status", node.reason === undefined ? node.status : `${node.status}: ${node.reason}`],
        ["url", node.url],
        ["version", `${node.version}${node.commit === "" ? "" : `, commit ${node.commit}`}`],
        ["runsc", node.runsc],
        ["schema", node.schema],
        ["clock", clockOf(node)],
        ["processor", `${node.cpuClass}, ${node.metrics.cpuCount} cores, ${node.machineInfo.cpuModelName}`],
        ["labels", labels.join(" ")],
        ["sandboxes", `${node.sandboxCount} of ${node.sandboxMax} run, ${node.sandboxPausedCount} are paused, ${node.sandboxStartingCount} start`],
        ["warm", pools.join(" ")],
        ["memory", memoryOf(node)],
        ["templates", cachedBuilds.join(" ")],
      ],
    );
    printTable(
      ["SANDBOX ID", "TEMPLATE", "STARTED"],
      sandboxes.map(({ sandboxID, alias, templateID, startedAt }) => [sandboxID, alias ?? templateID, localTime(new Date(startedAt))]),
    );
    return 0;
  });
}

/** This route exists only on a gateway, so a node answers that it is not found. */
export function ofGateway<T>(answer: Promise<T>): Promise<T> {
  return answer.catch((error: unknown) => {
    if (error instanceof Failure && error.name === "ROUTE_NOT_FOUND")
      return fail(
        "ROUTE_NOT_FOUND",
        "this server is a node, and only a gateway knows all nodes: name one by --url; of this node, `svc list` shows the sandboxes, and `svc nodes drain self` drains it",
      );
    throw error;
  });
}

function cellsOf(node: ShownNode): string[] {
  const { id, status, reason, sandboxCount, sandboxPausedCount, sandboxStartingCount, sandboxMax, cpuClass, url, version, commit, runsc, schema } = node;
  const counts = [sandboxCount, sandboxPausedCount, sandboxStartingCount, sandboxMax].map(String);
  return [
    id,
    reason === undefined ? status : `${status}: ${reason}`,
    ...counts,
    memoryOf(node),
    cpuClass,
    version,
    commit.slice(0, 8),
    runsc.replace("runsc-", "").slice(0, 8),
    schema,
    clockOf(node),
    url,
  ];
}

function clockOf({ clockSkewMs }: ShownNode): string {
  return clockSkewMs === undefined ? "" : `${clockSkewMs < 0 ? "" : "+"}${(clockSkewMs / 1000).toFixed(1)} s`;
}

function memoryOf({ metrics: { memoryUsedBytes, memoryTotalBytes } }: ShownNode): string {
  return `${byteSize(memoryUsedBytes)} of ${byteSize(memoryTotalBytes)}`;
}
