// The options of a subscription, and what a snapshot remembers of it.
import type { Registration } from "@svc/contract/indexer.ts";
import type { Generations } from "../index/generations.ts";
import type { Intake } from "../index/intake.ts";
import type { NativeIndex } from "../index/native.ts";
import type { Order } from "../index/order.ts";
import type { Reclaimer } from "../index/reclaim.ts";
import type { PublisherKind } from "../registrations/register-input.ts";
import type { Listeners } from "../zmtp/listeners.ts";
import type { HealOptions } from "./heal.ts";
import type { LastTaken } from "./last-taken.ts";
import type { Verification } from "./verification.ts";

/** The state that a snapshot keeps of a subscription in addition to its blocks. */
export type Remembered = {
  next: number | null;
  gap: boolean;
  complete: boolean;
  isPartial?: boolean;
  needsAll?: boolean;
  former?: number | undefined;
  /** When the last batch was taken in, and its lag. */
  takenAtMs?: number | null;
  lagMs?: number | null;
};

export type SubscriptionOptions = HealOptions & {
  readonly index: NativeIndex;
  readonly reclaimer: Reclaimer;
  readonly intake: Intake;
  readonly generations: Generations;
  readonly registration: Registration;
  readonly kind: PublisherKind;
  readonly listeners: Listeners;
  readonly quietCheckMs: number;
  readonly uncertainMs: number;
  readonly remembered?: Remembered | undefined;
};

type Followed = {
  readonly order: Order;
  readonly gap: boolean;
  readonly complete: boolean;
  readonly verification: Verification;
  readonly generations: Generations;
  readonly last: LastTaken;
};

export function rememberedOf({ order, gap, complete, verification, generations, last }: Followed): Remembered {
  const ofOrder = { next: order.next ?? null, isPartial: order.partial, needsAll: verification.isOfAll };
  return { ...ofOrder, gap, complete, former: generations.former, takenAtMs: last.atMs, lagMs: last.lagMs };
}
