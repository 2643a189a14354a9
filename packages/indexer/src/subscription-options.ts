// What a subscription is made with, and what a snapshot keeps of it for the next one.
import type { Registration } from "@svc/contract/indexer.ts";
import type { HealOptions } from "./heal.ts";
import type { Held } from "./held.ts";
import type { Intake } from "./intake.ts";
import type { LastTaken } from "./last-taken.ts";
import type { NativeIndex } from "./native.ts";
import type { Order } from "./order.ts";
import type { Proof } from "./proof.ts";
import type { Reclaimer } from "./reclaim.ts";
import type { PublisherKind } from "./register-input.ts";

/** What a snapshot remembers of a subscription beside its blocks. */
export type Remembered = {
  next: number | null;
  gap: boolean;
  complete: boolean;
  isPartial?: boolean;
  needsAll?: boolean;
  former?: number | undefined;
  /** When the last batch was taken in, and how late it was. */
  takenAtMs?: number | null;
  lagMs?: number | null;
};

export type SubscriptionOptions = HealOptions & {
  readonly index: NativeIndex;
  readonly reclaimer: Reclaimer;
  readonly intake: Intake;
  readonly held: Held;
  readonly registration: Registration;
  readonly kind: PublisherKind;
  readonly quietCheckMs: number;
  readonly uncertainMs: number;
  readonly remembered?: Remembered | undefined;
};

type Followed = {
  readonly order: Order;
  readonly gap: boolean;
  readonly complete: boolean;
  readonly proof: Proof;
  readonly held: Held;
  readonly last: LastTaken;
};

export function rememberedOf({ order, gap, complete, proof, held, last }: Followed): Remembered {
  const ofOrder = { next: order.next ?? null, isPartial: order.partial, needsAll: proof.isOfAll };
  return { ...ofOrder, gap, complete, former: held.former, takenAtMs: last.atMs, lagMs: last.lagMs };
}
