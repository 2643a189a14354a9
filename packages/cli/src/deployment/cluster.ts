// Examines gateways and nodes: each gateway's view of the nodes, and the nodes' own metrics.
import { CLOCK_LIMIT_MS } from "@svc/contract/clock.ts";
import { type ShownNode, shownNode } from "@svc/contract/nodes.ts";
import { z } from "zod";
import { differences } from "../servers/nodes.ts";
import { type Asker, jsonOf, metricIn, reasonOf, unreachable } from "./ask.ts";
import type { Asked, Examined, Finding } from "./finding.ts";

const DISK_WARNING = 0.9;
const DISK_CRITICAL = 0.97;
const MEMORY_WARNING = 0.95;
const CERTIFICATE_WARNING_DAYS = 7;
const DAY_SECONDS = 86_400;

export type Access = { readonly urls: readonly string[]; readonly apiKey: string | undefined };
type Seen = Examined & { readonly nodes: readonly ShownNode[] };

export async function examineCluster(asker: Asker, { urls, apiKey }: Access): Promise<Examined> {
  const gateways = await Promise.all(urls.map((url) => examineGateway(asker, url, apiKey)));
  // A node that two gateways see is examined once, with the state of the gateway that can use it least.
  const nodes = new Map<string, ShownNode>();
  for (const node of gateways.flatMap((gateway) => gateway.nodes)) {
    const known = nodes.get(node.id);
    if (known === undefined || known.status === "ready") nodes.set(node.id, node);
  }
  const all = [...nodes.values()];
  const examined = await Promise.all(all.map((node) => examineNode(asker, node)));
  return {
    asked: [...gateways, ...examined].flatMap(({ asked }) => asked),
    findings: [...gateways, ...examined].flatMap(({ findings }) => findings).concat(ofAll(all)),
  };
}

async function examineGateway(asker: Asker, url: string, apiKey: string | undefined): Promise<Seen> {
  const where = `gateway ${url}`;
  try {
    const headers = apiKey === undefined ? {} : { "x-api-key": apiKey };
    const { status, text } = await asker.get(`${url}/nodes`, { headers });
    const asked: Asked[] = [{ kind: "gateway", url, answered: true }];
    // Only a gateway knows nodes: this server is a node that runs alone.
    if (status === 404) return { ...(await examineAlone(asker, url)), nodes: [] };
    if (status === 401 || status === 403)
      return { asked, nodes: [], findings: [{ severity: "critical", where, says: "refuses the API key, so its nodes cannot be listed", fix: "svc auth" }] };
    const parsed = z.array(shownNode).safeParse(jsonOf(text));
    if (!parsed.success)
      return {
        asked,
        nodes: [],
        findings: [{ severity: "critical", where, says: `answers ${status} where a list of nodes is expected`, fix: `curl -i ${url}/health` }],
      };
    const findings: Finding[] = [];
    if (!parsed.data.some((node) => node.status === "ready"))
      findings.push({
        severity: "critical",
        where,
        says: `none of its ${parsed.data.length} nodes is ready: nothing can be created`,
        fix: `svc nodes list --url ${url}`,
      });
    return { asked, nodes: parsed.data, findings };
  } catch (error) {
    return { asked: [{ kind: "gateway", url, answered: false }], nodes: [], findings: [unreachable("gateway", url, error)] };
  }
}

async function examineAlone(asker: Asker, url: string): Promise<Examined> {
  try {
    const findings = ofScrape(`node ${url}`, (await asker.get(`${url}/metrics`)).text);
    return { asked: [{ kind: "node", url, answered: true }], findings };
  } catch (error) {
    return { asked: [{ kind: "node", url, answered: false }], findings: [unreachable("node", url, error)] };
  }
}

async function examineNode(asker: Asker, node: ShownNode): Promise<Examined> {
  const { id, url } = node;
  const findings = ofShown(node);
  if (!URL.canParse(url)) return { asked: [], findings };
  try {
    const { text } = await asker.get(`${url}/metrics`);
    return { asked: [{ kind: "node", url, answered: true }], findings: [...findings, ...ofScrape(id, text)] };
  } catch (error) {
    const reason = reasonOf(error);
    // Networks may let gateways alone reach nodes. A node that gateways do not reach either has its line already.
    const here: Finding = {
      severity: "note",
      where: id,
      says: `its gateways reach it, and this machine does not (${reason}): its certificate and losses were not examined`,
      fix: `on a machine that reaches it: curl ${url}/metrics`,
    };
    return {
      asked: [{ kind: "node", url, answered: false }],
      findings: node.status === "ready" || node.status === "draining" ? [...findings, here] : findings,
    };
  }
}

/** Returns the findings of one node's row. */
export function ofShown(node: ShownNode): Finding[] {
  const { id: where, status, reason = "its gateways do not reach it", clockSkewMs = 0, metrics, sandboxCount, sandboxStartingCount, sandboxMax } = node;
  const isClockOff = Math.abs(clockSkewMs) > CLOCK_LIMIT_MS;
  const found: Finding[] = [];
  if (isClockOff) found.push({ severity: "critical", where, says: reason, fix: "on its machine: timedatectl set-ntp true" });
  else if (status === "unhealthy" || status === "connecting")
    found.push({
      severity: "critical",
      where,
      says: `is ${status}: ${reason}`,
      fix: `on its machine: systemctl restart svc-node; if the machine is lost: svc nodes remove ${where} --dead`,
    });
  if (status === "draining") found.push({ severity: "note", where, says: "drains: it takes no new sandboxes", fix: `svc nodes undrain ${where}` });
  if (sandboxMax > 0 && sandboxCount + sandboxStartingCount >= sandboxMax)
    found.push({
      severity: "warning",
      where,
      says: `is full: ${sandboxCount + sandboxStartingCount} of ${sandboxMax} sandboxes`,
      fix: "add a node, or raise sandbox.max_sandboxes on this one",
    });
  for (const { usedBytes, totalBytes } of metrics.disks) {
    const share = totalBytes === 0 ? 0 : usedBytes / totalBytes;
    if (share < DISK_WARNING) continue;
    found.push({
      severity: share < DISK_CRITICAL ? "warning" : "critical",
      where,
      says: `its disk is ${Math.floor(share * 100)} % full`,
      fix: "svc list --state paused, and svc delete those that no one needs; else svc snapshot list and svc template list",
    });
  }
  if (metrics.memoryTotalBytes > 0 && metrics.memoryUsedBytes / metrics.memoryTotalBytes > MEMORY_WARNING)
    found.push({
      severity: "warning",
      where,
      says: "less than 5 % of its memory is available",
      fix: `svc nodes drain ${where}, or pause sandboxes: svc metrics --all`,
    });
  return found;
}

/** Returns the findings of a node's own metrics. */
export function ofScrape(where: string, scrape: string, nowMs = Date.now()): Finding[] {
  const found: Finding[] = [];
  const expiry = metricIn(scrape, "svc_tls_certificate_expiry_seconds");
  const days = expiry === undefined ? Number.POSITIVE_INFINITY : Math.floor((expiry - nowMs / 1000) / DAY_SECONDS);
  const replace = "replace tls.cert_file and tls.key_file on its machine; no restart is needed";
  if (days < 0) found.push({ severity: "critical", where, says: "its certificate has expired", fix: replace });
  else if (days < CERTIFICATE_WARNING_DAYS) found.push({ severity: "warning", where, says: `its certificate expires in ${days} days`, fix: replace });
  if (metricIn(scrape, "svc_tls_certificate_refused") === 1)
    found.push({
      severity: "warning",
      where,
      says: "its certificate's files have changed and cannot be served",
      fix: `${replace}; its log says what is wrong`,
    });
  const lost = { svc_node_events_lost: "lifecycle events", svc_node_audit_lines_lost: "lines of its audit log" };
  for (const [metric, what] of Object.entries(lost)) {
    const count = metricIn(scrape, metric) ?? 0;
    if (count > 0)
      found.push({
        severity: "warning",
        where,
        says: `lost ${count} ${what} since its start`,
        fix: "on its machine: journalctl -u svc-node says why (a full disk, most often)",
      });
  }
  return found;
}

/** Returns a finding for everything that the nodes should agree on and do not. */
function ofAll(nodes: readonly ShownNode[]): Finding[] {
  return differences(nodes).map((line) => {
    const says = line.replace(/^warning: /, "");
    const isProcessor = says.includes("class of their processors");
    const isClock = says.startsWith("the clock");
    return {
      severity: isProcessor ? "note" : "warning",
      where: "nodes",
      says,
      fix: isProcessor
        ? "nothing to do if it is meant: svc nodes list shows the classes"
        : isClock
          ? "on its machine: timedatectl set-ntp true"
          : "svc nodes upgrade --to COMMIT --run COMMAND",
    };
  });
}
