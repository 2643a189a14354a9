// Examines the servers in front of engines: the indexer has a diagnosis of each publisher, and the router has a state of each engine.
import { z } from "zod";
import { type Asker, jsonOf, reasonOf, unreachable } from "./ask.ts";
import type { Examined, Finding } from "./finding.ts";
import { merged } from "./finding.ts";

const services = z.looseObject({
  doctor: z.array(z.string()).default([]),
  services: z.array(
    z.looseObject({
      instance_id: z.string(),
      dp_rank: z.number().default(0),
      tenant_id: z.string().default("default"),
      freshness: z.looseObject({ state: z.string().default("") }).optional(),
      doctor: z.array(z.string()).default([]),
    }),
  ),
});
const health = z.looseObject({ status: z.string(), engines: z.array(z.looseObject({ name: z.string(), fit: z.boolean(), because: z.string().optional() })) });
const engines = z.looseObject({ engines: z.array(z.looseObject({ name: z.string(), draining: z.boolean(), index_state: z.string().optional() })) });

export async function examineIndexer(asker: Asker, url: string): Promise<Examined> {
  const where = `indexer ${url}`;
  try {
    const found = await asker.json(`${url}/services`, services);
    const own = found.doctor.map((says): Finding => ({ severity: "warning", where, says, fix: `svc index services --url ${url} --output json` }));
    const rows = found.services.flatMap(({ instance_id, dp_rank, tenant_id, freshness, doctor }) => {
      const isDead = freshness?.state === "dead";
      const tenant = tenant_id === "default" ? "" : ` --tenant ${tenant_id}`;
      const fix = isDead
        ? `if the engine is gone: svc index unregister --instance ${instance_id} --dp-rank ${dp_rank}${tenant} --url ${url}`
        : `svc index services --url ${url} --output json`;
      return doctor.map((says): Finding => ({ severity: isDead ? "critical" : "warning", where: `publisher ${instance_id}`, says, fix }));
    });
    return { asked: [{ kind: "indexer", url, answered: true }], findings: [...own, ...rows] };
  } catch (error) {
    return { asked: [{ kind: "indexer", url, answered: false }], findings: [unreachable("indexer", url, error)] };
  }
}

export async function examineRouter(asker: Asker, url: string, adminKey: string | undefined): Promise<Examined> {
  const where = `router ${url}`;
  try {
    const { status, text } = await asker.get(`${url}/health`);
    const said = health.safeParse(jsonOf(text));
    const asked = [{ kind: "router", url, answered: true } as const];
    if (!said.success)
      return { asked, findings: [{ severity: "critical", where, says: `answers ${status} where its engines are expected`, fix: `curl -i ${url}/health` }] };
    const findings: Finding[] = [];
    if (!said.data.engines.some(({ fit }) => fit))
      findings.push({ severity: "critical", where, says: `${said.data.status}: prompts are refused`, fix: "start an engine, or correct router.engines" });
    for (const { name, fit, because = "it cannot be chosen" } of said.data.engines)
      if (!fit)
        findings.push({ severity: "warning", where: `engine ${name}`, says: because, fix: `see that the engine answers; svc-router's log says what it got` });
    return merged([{ asked, findings }, await ofEngines(asker, url, adminKey)]);
  } catch (error) {
    return { asked: [{ kind: "router", url, answered: false }], findings: [unreachable("router", url, error)] };
  }
}

async function ofEngines(asker: Asker, url: string, adminKey: string | undefined): Promise<Examined> {
  try {
    const found = await asker.json(`${url}/admin/engines`, engines, adminKey ? { headers: { authorization: `Bearer ${adminKey}` } } : {});
    const findings = found.engines.flatMap(({ name, draining }): Finding[] =>
      draining
        ? [
            {
              severity: "note",
              where: `engine ${name}`,
              says: "drains: it takes no new prompts",
              fix: `curl -X POST ${url}/admin/engines/${encodeURIComponent(name)}/undrain`,
            },
          ]
        : [],
    );
    return { asked: [], findings };
  } catch (error) {
    const note: Finding = {
      severity: "note",
      where: `router ${url}`,
      says: `draining engines were not examined (${reasonOf(error)})`,
      fix: "set SVC_ROUTER_ADMIN_KEY",
    };
    return { asked: [], findings: [note] };
  }
}
