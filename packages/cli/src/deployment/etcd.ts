// Examines etcd through its JSON gateway: members that do not answer, have no leader, or raised an alarm.
import { z } from "zod";
import { type Asker, unreachable } from "./ask.ts";
import type { Examined, Finding } from "./finding.ts";

/** etcd's default quota; it refuses writes beyond it. */
const QUOTA_BYTES = 2 * 2 ** 30;
const status = z.looseObject({
  leader: z.string().default("0"),
  dbSize: z.coerce.number().default(0),
  dbSizeInUse: z.coerce.number().default(0),
  errors: z.array(z.string()).default([]),
});
const alarms = z.looseObject({ alarms: z.array(z.looseObject({ memberID: z.string().default("0"), alarm: z.string().default("") })).default([]) });

export async function examineEtcd(asker: Asker, url: string): Promise<Examined> {
  const where = `etcd ${url}`;
  const ask = <T>(path: string, shape: z.ZodType<T>, body: object) =>
    asker.json(url + path, shape, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  try {
    const [member, raised] = await Promise.all([ask("/v3/maintenance/status", status, {}), ask("/v3/maintenance/alarm", alarms, { action: "GET" })]);
    const findings: Finding[] = [];
    if (member.leader === "0" || member.leader === "")
      findings.push({
        severity: "critical",
        where,
        says: "has no leader: no node can join, and nothing can move",
        fix: `etcdctl --endpoints ${url} endpoint status --cluster`,
      });
    for (const { alarm } of raised.alarms)
      findings.push({
        severity: "critical",
        where,
        says: `raised the alarm ${alarm}`,
        fix: alarm === "NOSPACE" ? `etcdctl --endpoints ${url} compact REVISION, then defrag, then alarm disarm` : `etcdctl --endpoints ${url} alarm list`,
      });
    if (member.dbSize > 0.8 * QUOTA_BYTES)
      findings.push({
        severity: "warning",
        where,
        says: `its database has ${Math.round(member.dbSize / 2 ** 20)} MiB, and writes are refused beyond its quota (2048 MiB unless set)`,
        fix: `etcdctl --endpoints ${url} defrag`,
      });
    return { asked: [{ kind: "etcd", url, answered: true }], findings };
  } catch (error) {
    return { asked: [{ kind: "etcd", url, answered: false }], findings: [unreachable("etcd", url, error)] };
  }
}
