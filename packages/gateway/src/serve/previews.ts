// Previews at a gateway: every node has all of them, and the gateway routes by those that it knows.
import { call } from "@svc/contract/call.ts";
import { fail } from "@svc/contract/failures.ts";
import {
  isLaterPreview,
  isLivingPreview,
  isSamePreview,
  MAX_PREVIEW_RECORDS,
  MAX_PREVIEWS,
  type PreviewRecord,
  type previewOperations,
  settlePreviews,
  shownPreview,
} from "@svc/contract/previews.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PreviewNames } from "@svc/kit/proxy/address.ts";
import type { Context, Handlers } from "@svc/kit/serve.ts";
import type { Member } from "../members/member.ts";
import type { Members } from "../members/members.ts";
import { weightOf } from "../place/place.ts";
import { openSettling } from "./settling.ts";

const TIMEOUT_MS = 5_000;
/** Nodes report in their streams that previews changed there, through another gateway or because a sandbox ended. */
const WATCH_MS = 200;

export type GatewayPreviewParts = {
  readonly members: Members;
  readonly apiKey: string;
  readonly domain: () => string;
  /** @throws SANDBOX_NOT_FOUND, NODE_LOST. */
  readonly sandbox: (input: { sandboxID: string }, context: Context) => Promise<unknown>;
  readonly log: Log;
};

export interface GatewayPreviews {
  readonly handlers: Handlers<typeof previewOperations>;
  readonly names: PreviewNames;
  close(): void;
}

export function openGatewayPreviews({ members, apiKey, domain, sandbox, log }: GatewayPreviewParts): GatewayPreviews {
  const known = new Map<string, PreviewRecord>();
  const living = new Map<string, PreviewRecord>();
  const settling = openSettling({ members, what: "previews", canSettle: ({ identity }) => identity?.settlesPreviews === true, settle, log });

  function learn(records: readonly PreviewRecord[]): boolean {
    const news = records.filter((each) => isLaterPreview(each, known.get(each.name)));
    for (const each of news) {
      known.set(each.name, each);
      if (isLivingPreview(each)) living.set(each.name, each);
      else living.delete(each.name);
    }
    const deleted = [...known.values()].filter(({ isDeleted }) => isDeleted).sort((a, b) => b.updatedAtMs - a.updatedAtMs);
    for (const { name } of deleted.slice(MAX_PREVIEW_RECORDS - MAX_PREVIEWS)) known.delete(name);
    return news.some(({ name }) => known.has(name));
  }

  const to = (member: Member) => ({ baseURL: member.url, apiKey, send: member.peers.send, signal: member.signal, timeoutMs: TIMEOUT_MS });

  async function settle(member: Member): Promise<boolean> {
    return learn(await call(settlePreviews, { previews: [...known.values()] }, to(member)));
  }

  /** Every gateway picks the same node, which decides between two that want one name at once. */
  function deciding(): Member {
    const [chosen] = settling.settled().sort((a, b) => weightOf("previews", b.name) - weightOf("previews", a.name));
    return chosen ?? fail("SERVER_UNREACHABLE", "no node of this deployment that keeps previews answers; GET /nodes says why", { retryAfterSeconds: 1 });
  }

  /** The changes of each node that this gateway has read, by the node's start. */
  const read = new Map<Member, string>();
  const watching = setInterval(() => {
    for (const member of members.up) {
      const at = `${member.life} ${member.load?.previewChanges ?? 0}`;
      if (read.get(member) === at) continue;
      read.set(member, at);
      settling.changed();
    }
    for (const member of read.keys()) if (!members.all.includes(member)) read.delete(member);
    if (settling.settled().length < members.up.length) void settling.once();
  }, WATCH_MS).unref();

  /** Reads what another gateway may just have changed. */
  async function latest(context: Context): Promise<void> {
    await settling.fresh(context);
    learn(await call(settlePreviews, { previews: [] }, to(deciding())));
  }

  function get(name: string): PreviewRecord {
    return living.get(name) ?? fail("PREVIEW_NOT_FOUND", `preview '${name}' was not found; \`svc expose list\` lists them`);
  }

  const later = (before: PreviewRecord | undefined) => Math.max(Date.now(), (before?.updatedAtMs ?? -1) + 1);

  async function changed(context: Context): Promise<void> {
    settling.changed();
    await settling.fresh(context);
  }

  return {
    names: {
      get size() {
        return living.size;
      },
      find: (name) => living.get(name),
    },
    handlers: {
      async createPreview({ name, sandboxID, port, replace }, context) {
        await sandbox({ sandboxID }, context);
        await latest(context);
        const before = known.get(name);
        const now = later(before);
        const claim = { name, sandboxID, port, createdAtMs: now, updatedAtMs: now, endedAtMs: null, isDeleted: false };
        // A record that replaces a living one of another sandbox is settled, and not claimed.
        const isOther = before !== undefined && isLivingPreview(before) && !isSamePreview(before, claim);
        const input = replace && isOther ? { previews: [claim] } : { previews: [], claim };
        learn(await call(settlePreviews, input, to(deciding())));
        await changed(context);
        const made = get(name);
        if (!isSamePreview(made, claim))
          fail("PREVIEW_EXISTS", `preview '${name}' was taken by sandbox ${made.sandboxID} at the same time; choose another name`);
        return shownPreview(made, domain());
      },
      async listPreviews({ sandboxID }, context) {
        await latest(context);
        const found = [...living.values()].filter((each) => sandboxID === undefined || each.sandboxID === sandboxID);
        return found.sort((a, b) => (a.name < b.name ? -1 : 1)).map((each) => shownPreview(each, domain()));
      },
      async getPreview({ name }, context) {
        await latest(context);
        return shownPreview(get(name), domain());
      },
      async deletePreview({ name }, context) {
        await latest(context);
        const before = get(name);
        const record = { ...before, isDeleted: true, updatedAtMs: later(before) };
        learn(await call(settlePreviews, { previews: [record] }, to(deciding())));
        await changed(context);
        return undefined;
      },
    },
    close() {
      clearInterval(watching);
      settling.close();
    },
  };
}
