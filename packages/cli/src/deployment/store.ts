// Examines the cache store: all masters, found from the one that was named, the services and the admin server.
import { z } from "zod";
import { type Asker, metricIn, reasonOf, unreachable } from "./ask.ts";
import type { Asked, Examined, Finding, Kind } from "./finding.ts";
import { merged } from "./finding.ts";

const MAX_LAG_RECORDS = 100_000;
const address = z.looseObject({ name: z.string(), http: z.string() });
const view = z.looseObject({
  success: z.boolean(),
  name: z.string().default(""),
  role: z.string().default(""),
  state: z.string().default(""),
  reason: z.string().default(""),
  leader: address.nullable().default(null),
  in_sync: z.array(z.string()).default([]),
  standbys: z.array(z.looseObject({ name: z.string(), http: z.string(), in_sync: z.boolean(), lag: z.number() })).default([]),
});
type View = z.output<typeof view>;
const devices = z.looseObject({ devices: z.array(z.looseObject({ device_id: z.string(), state: z.string(), last_error: z.string().nullish() })) });

const bearer = (token: string | undefined) => (token === undefined || token === "" ? {} : { headers: { authorization: `Bearer ${token}` } });

export async function examineMasters(asker: Asker, urls: readonly string[], token: string | undefined): Promise<Examined> {
  const done = new Map<string, Promise<{ examined: Examined; view: View | undefined }>>();
  const ask = (url: string) => {
    const known = done.get(url) ?? examineMaster(asker, url, token);
    done.set(url, known);
    return known;
  };
  // The named masters name the leader, and the leader names its standbys.
  let next = [...urls];
  while (next.length > 0) {
    const answers = await Promise.all(next.map(ask));
    next = answers
      .flatMap(({ view: seen }) => [seen?.leader?.http, ...(seen?.standbys.map(({ http }) => http) ?? [])])
      .filter((url) => url !== undefined && URL.canParse(url) && !done.has(url)) as string[];
    next = [...new Set(next)];
  }
  const all = await Promise.all(done.values());
  const views = all.flatMap(({ view: seen }) => (seen === undefined ? [] : [seen]));
  return merged([...all.map(({ examined }) => examined), { asked: [], findings: ofCluster(views) }]);
}

async function examineMaster(asker: Asker, url: string, token: string | undefined): Promise<{ examined: Examined; view: View | undefined }> {
  const where = `store master ${url}`;
  try {
    const [health, scrape, seen] = await Promise.all([
      asker.get(`${url}/health`),
      asker.get(`${url}/metrics`),
      // A master that is alone refuses this, and one with access keys needs one.
      asker.json(`${url}/api/v1/ha`, view, bearer(token)).catch(() => undefined),
    ]);
    const findings: Finding[] = [];
    if (health.status !== 200)
      findings.push({
        severity: "critical",
        where,
        says: `does not serve: ${health.text.trim().slice(0, 300)}`,
        fix: `svc store leader --url ${url}; its log says more`,
      });
    const value = (name: string) => metricIn(scrape.text, name) ?? 0;
    if (value("svc_store_log_full") > 0)
      findings.push({
        severity: "critical",
        where,
        says: "its log's disk is full: puts are refused",
        fix: "on its machine: free space on the disk of its home (du -xh --max-depth=2 $SVC_HOME)",
      });
    if (value("svc_store_log_quarantined_files") > 0)
      findings.push({
        severity: "warning",
        where,
        says: "a part of its log was damaged and is quarantined",
        fix: "keep the .damaged file until it is clear what is missing, then delete it; check the disk (smartctl -a)",
      });
    return { examined: { asked: [{ kind: "store master", url, answered: true }], findings }, view: seen?.success === true ? seen : undefined };
  } catch (error) {
    return { examined: { asked: [{ kind: "store master", url, answered: false }], findings: [unreachable("store master", url, error)] }, view: undefined };
  }
}

/** Returns the findings of all masters together; none where a single master runs without standbys. */
export function ofCluster(views: readonly View[]): Finding[] {
  const [first] = views;
  if (first === undefined) return [];
  const leader = views.find(({ role }) => role === "leader");
  const where = "store masters";
  if (leader === undefined)
    return [
      {
        severity: "critical",
        where,
        says: "none of them leads: puts and gets are refused",
        fix: `see that etcd answers and two masters run: svc store leader; ${first.name} is ${first.state}`,
      },
    ];
  const found: Finding[] = [];
  if (leader.reason !== "") found.push({ severity: "critical", where: leader.name, says: leader.reason, fix: "svc store leader" });
  if (!leader.standbys.some(({ in_sync }) => in_sync))
    found.push({
      severity: "critical",
      where,
      says: "no standby is in sync: the loss of the leader would lose the store",
      fix: "start another master, then svc store standbys",
    });
  for (const { name, in_sync: isInSync, lag } of leader.standbys)
    if (!isInSync || lag > MAX_LAG_RECORDS)
      found.push({
        severity: "warning",
        where: name,
        says: isInSync ? `is ${lag} records behind the leader` : "is a standby that is not in sync",
        fix: "svc store standbys shows whether it catches up; else restart it",
      });
  return found;
}

/** Servers whose /health says all that this command needs. */
export async function examineHealth(asker: Asker, kind: Kind, url: string): Promise<Examined> {
  try {
    const { status, text } = await asker.get(`${url}/health`);
    const asked: Asked[] = [{ kind, url, answered: true }];
    if (status === 200) return { asked, findings: [] };
    return {
      asked,
      findings: [
        {
          severity: "critical",
          where: `${kind} ${url}`,
          says: `does not serve: ${text.trim().slice(0, 300)}`,
          fix: `curl -i ${url}/health; its log says more`,
        },
      ],
    };
  } catch (error) {
    return { asked: [{ kind, url, answered: false }], findings: [unreachable(kind, url, error)] };
  }
}

export async function examineAdmin(asker: Asker, url: string, token: string | undefined): Promise<Examined> {
  const health = await examineHealth(asker, "store admin", url);
  if (!health.asked.some(({ answered }) => answered)) return health;
  try {
    const found = await asker.json(`${url}/v1/cold-tier/devices`, devices, bearer(token));
    const failed = found.devices.filter(({ state }) => state === "failed");
    const findings = failed.map(({ device_id, last_error }): Finding => {
      const why = last_error === undefined || last_error === null || last_error === "" ? "" : `: ${last_error}`;
      return { severity: "warning", where: `device ${device_id}`, says: `failed${why}`, fix: `svc store devices disable ${device_id}` };
    });
    return merged([health, { asked: [], findings }]);
  } catch (error) {
    const note: Finding = {
      severity: "note",
      where: `store admin ${url}`,
      says: `its devices were not examined (${reasonOf(error)})`,
      fix: "set SVC_STORE_ADMIN_TOKEN",
    };
    return merged([health, { asked: [], findings: [note] }]);
  }
}
