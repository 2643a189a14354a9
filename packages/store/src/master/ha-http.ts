// The HTTP routes of one of several masters: its role, its standbys, and handing over leadership.

import { asFailure } from "@svc/contract/failures.ts";
import type { Answer } from "@svc/kit/http/exchange.ts";
import type { Ha } from "../ha/ha.ts";
import { codes } from "../rpc/codes.ts";
import { failed, json } from "./api.ts";
import { searchOf } from "./query.ts";

type Parts = { readonly ha: Ha | undefined };

const alone = () => failed(codes.UNAVAILABLE_IN_CURRENT_MODE, "there is one master: setting store.enable_ha is off");

async function lead(search: string, { ha }: Parts): Promise<Answer> {
  if (ha === undefined) return alone();
  const to = searchOf(search, "to") ?? "";
  if (to === "") return failed(codes.INVALID_PARAMS, "to: expected the name of a standby that is in sync");
  try {
    const { name, rpc, http } = await ha.handOver(Buffer.from(to, "latin1").toString());
    return json({ success: true, leader: { name, rpc, http } });
  } catch (error) {
    const { name, message } = asFailure(error);
    return failed(
      name === "STORE_KEY_NOT_FOUND"
        ? codes.SEGMENT_NOT_FOUND
        : name === "STORE_CONFLICT"
          ? codes.UNAVAILABLE_IN_CURRENT_STATUS
          : codes.UNAVAILABLE_IN_CURRENT_MODE,
      message,
    );
  }
}

/** These routes also answer on a standby. */
export const haRoutes = {
  "GET /api/v1/ha": [
    "The masters of this store: which one leads, which standbys are in sync, and how far they lag",
    (_search: string, { ha }: Parts) => (ha === undefined ? alone() : json(ha.describe())),
  ],
  "POST /api/v1/lead": ["Hands the lead over to the standby named by ?to=NAME", lead],
} as const;

export function haSummary(ha: Ha | undefined): string {
  if (ha === undefined) return "";
  const { epoch, inSync, lag } = ha.gauges();
  return `, ha={name=${ha.self.name}, epoch=${epoch}, leader=${ha.leaderView.leader_address}, in_sync=${inSync}, lag=${lag}}`;
}
