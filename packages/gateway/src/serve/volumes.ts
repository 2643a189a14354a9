// Volumes at a gateway: one of a node's own is found on that node, one in a shared directory on any; a name is given once in a tenant.
import { fail } from "@svc/contract/failures.ts";
import type { Output, Parsed } from "@svc/contract/operation.ts";
import { listVolumes, volumeOperations as ops, type Volume, type VolumeMount } from "@svc/contract/volumes.ts";
import type { CountVolumes } from "@svc/kit/keys/handlers.ts";
import { tenantOf } from "@svc/kit/keys/principal.ts";
import type { TenantQuotas } from "@svc/kit/keys/tenant-quotas.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { weightOf } from "../place/place.ts";
import type { Merge } from "./merge.ts";
import { nodeLost, type Relay } from "./relay.ts";

export type VolumeParts = { readonly members: Members; readonly merge: Merge; readonly relay: Relay; readonly quotas: Pick<TenantQuotas, "runVolume"> };

export interface GatewayVolumes {
  readonly handlers: Handlers<typeof ops>;
  /** Returns the nodes on which a sandbox with these volumes can start. @throws VOLUME_NOT_FOUND, INVALID_REQUEST, NODE_LOST. */
  nodesFor(mounts: readonly VolumeMount[], context: Context): Promise<Member[]>;
  readonly count: CountVolumes;
}

type Held = { readonly member: Member; readonly volume: Volume };

export function openGatewayVolumes({ members, merge, relay, quotas }: VolumeParts): GatewayVolumes {
  /** Returns what each node that is up has; the context's header names the others. */
  async function held(context: Context): Promise<Held[]> {
    const asked = members.up.filter((member) => member.identity?.hasVolumes === true);
    const quiet: Context = { ...context, header: () => {} };
    const lists = await Promise.all(
      asked.map(async (member) => {
        const answers = await merge.ask(listVolumes, (each) => (each === member ? {} : undefined), quiet);
        return answers.flat().map((volume) => ({ member, volume }));
      }),
    );
    return lists.flat();
  }

  /** Nodes show a tenant its own volumes alone; the deployment's own key sees all, and means its own by a name. */
  const named = ({ volume }: Held, name: string, { principal }: Context) => volume.name === name && volume.tenant === tenantOf(principal);

  /** @throws NODE_LOST while a node is away that might have it. */
  function absent(asked: string): never {
    const uncertain = members.whyUncertain("");
    if (uncertain !== "") fail("NODE_LOST", `no node that answers has volume '${asked}'; ${uncertain}`);
    return fail("VOLUME_NOT_FOUND", `volume '${asked}' was not found on any node; \`svc volume list\` lists them`);
  }

  async function holdersOf(asked: string, context: Context): Promise<[Held, ...Held[]]> {
    const all = await held(context);
    const byID = all.filter(({ volume }) => volume.volumeID === asked);
    const [first, ...others] = byID.length > 0 ? byID : all.filter((each) => named(each, asked, context));
    return first === undefined ? absent(asked) : [first, ...others];
  }

  /** A shared volume is listed by every node; its sandboxes are those of all of them. */
  function merged(all: readonly Held[]): Volume[] {
    const found = new Map<string, Volume>();
    for (const { volume } of all) {
      const known = found.get(volume.volumeID);
      found.set(volume.volumeID, known === undefined ? volume : { ...known, sandboxIDs: [...new Set([...known.sandboxIDs, ...volume.sandboxIDs])] });
    }
    return [...found.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  async function make(input: Parsed<typeof ops.createVolume>, context: Context): Promise<Output<typeof ops.createVolume>> {
    const known = (await held(context)).find((each) => named(each, input.name, context));
    if (known !== undefined) fail("VOLUME_EXISTS", `volume '${input.name}' exists already; choose another name, or delete it first`);
    const uncertain = members.whyUncertain("");
    if (uncertain !== "") fail("NODE_LOST", `a node that does not answer may have a volume named '${input.name}'; ${uncertain}`);
    // Every gateway picks the same node, so that two of them do not make two volumes with one name.
    const able = members.up.filter(({ identity, load }) => identity?.hasVolumes === true && load?.isDraining !== true);
    const [chosen] = [...able].sort((a, b) => weightOf(input.name, b.name) - weightOf(input.name, a.name));
    if (chosen === undefined) fail("SERVER_UNREACHABLE", "no node of this deployment answers and takes volumes; GET /nodes says why", { retryAfterSeconds: 1 });
    return relay(ops.createVolume, input, context, chosen);
  }

  return {
    handlers: {
      createVolume: (input, context) =>
        quotas.runVolume(
          tenantOf(context.principal),
          async () => merged(await held(context)).length,
          () => make(input, context),
        ),
      async listVolumes(_, context) {
        // The list of one call names missing nodes.
        const lists = await merge.ask(listVolumes, (member) => (member.identity?.hasVolumes === false ? undefined : {}), context);
        return merged(lists.flat().map((volume) => ({ member: members.all[0] as Member, volume })));
      },
      async getVolume({ volumeID }, context) {
        const all = await holdersOf(volumeID, context);
        const [{ member, volume }] = all;
        const { token } = await relay(ops.getVolume, { volumeID: volume.volumeID }, context, member);
        const [shown = volume] = merged(all);
        return { ...shown, token };
      },
      async deleteVolume({ volumeID }, context) {
        const all = await holdersOf(volumeID, context);
        const [{ member, volume }] = all;
        const [shown = volume] = merged(all);
        if (volume.nodeID === undefined) mustKnowAllUsers(shown);
        if (shown.sandboxIDs.length > 0)
          fail("VOLUME_IN_USE", `volume '${volume.name}' is mounted by sandbox ${shown.sandboxIDs.join(", ")}: end what mounts it first`);
        return relay(ops.deleteVolume, { volumeID: volume.volumeID }, context, member);
      },
    },
    async nodesFor(mounts, context) {
      const all = await held(context);
      let nodes: readonly Member[] | undefined;
      for (const { name } of mounts) {
        const having = all.filter((each) => named(each, name, context)).map(({ member }) => member);
        if (having.length === 0) absent(name);
        nodes = (nodes ?? having).filter((member) => having.includes(member));
        if (nodes.length === 0)
          fail(
            "INVALID_REQUEST",
            `volumeMounts: no node has all of ${mounts.map((each) => `'${each.name}'`).join(", ")}: volumes of several nodes need a shared directory (volumes.directory)`,
          );
      }
      return [...(nodes ?? [])].sort((a, b) => a.running.size - b.running.size);
    },
    async count(context) {
      const found = new Map<string, number>();
      for (const { tenant } of merged(await held(context))) if (tenant !== undefined) found.set(tenant, (found.get(tenant) ?? 0) + 1);
      return found;
    },
  };

  function mustKnowAllUsers({ name }: Volume): void {
    const away = members.all.find((member) => !member.isUp);
    if (away !== undefined) throw nodeLost(away, `sandboxes that may mount volume '${name}'`);
  }
}
