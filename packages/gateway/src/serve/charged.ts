// Creates, forks and resumes of tenants, each charged against the tenant's quotas over all nodes.
import type { Output, Parsed } from "@svc/contract/operation.ts";
import type { nodeOperations } from "@svc/contract/sandbox.ts";
import { NO_USAGE, type Usage } from "@svc/contract/tenants.ts";
import { tenantOf } from "@svc/kit/keys/principal.ts";
import type { Charge, TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Context } from "@svc/kit/serve.ts";
import type { TenantUsage } from "../members/tenant-usage.ts";

type Handler<I, O> = (input: I, context: Context) => Promise<O>;
type Fork = (typeof nodeOperations)["forkSandbox"];

export type Charged = {
  create<I extends { readonly templateID: string }, O extends { readonly sandboxID: string }>(handler: Handler<I, O>): Handler<I, O>;
  resume<I extends { readonly sandboxID: string }, O>(handler: Handler<I, O>): Handler<I, O>;
  fork(handler: Handler<Parsed<Fork>, Output<Fork>>): Handler<Parsed<Fork>, Output<Fork>>;
};

/** Requests with the deployment's own key pass as they are. */
export function openCharged(quotas: TenantQuotas, usage: TenantUsage): Charged {
  return {
    create: (handler) => async (input, context) => {
      const tenant = tenantOf(context.principal);
      if (tenant === undefined) return handler(input, context);
      quotas.takeCreate(tenant);
      const charge: Charge = { tenant, usage: usage.sizeOf(input.templateID) };
      return quotas.run(charge, async () => {
        const answer = await handler(input, context);
        usage.started(answer.sandboxID, charge);
        return answer;
      });
    },
    resume: (handler) => async (input, context) => {
      const tenant = tenantOf(context.principal);
      const { sandboxID } = input;
      const known = tenant === undefined ? undefined : usage.sizeOfSandbox(sandboxID);
      if (known === undefined || known.runs) return handler(input, context);
      const charge: Charge = { tenant, usage: { ...known.usage, diskMB: 0 } };
      return quotas.run(charge, async () => {
        const answer = await handler(input, context);
        usage.started(sandboxID, charge);
        return answer;
      });
    },
    fork: (handler) => async (input, context) => {
      const tenant = tenantOf(context.principal);
      const one = tenant === undefined ? undefined : usage.sizeOfSandbox(input.sandboxID)?.usage;
      if (one === undefined) return handler(input, context);
      for (let child = 0; child < input.count; child++) quotas.takeCreate(tenant);
      return quotas.run({ tenant, usage: times(one, input.count) }, async () => {
        const children = await handler(input, context);
        for (const each of children) if ("sandbox" in each && each.sandbox !== undefined) usage.started(each.sandbox.sandboxID, { tenant, usage: one });
        return children;
      });
    },
  };
}

function times({ sandboxes, processors, memoryMB, diskMB }: Usage, count: number): Usage {
  return { ...NO_USAGE, sandboxes: sandboxes * count, processors: processors * count, memoryMB: memoryMB * count, diskMB: diskMB * count };
}
