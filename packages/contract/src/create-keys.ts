// Decides which node may create under an Idempotency-Key: what gateways request from the registrar, which decides, and from nodes that may no longer create.
import { z } from "zod";
import { nodeIDForm } from "./cluster-records.ts";
import { operation } from "./operation.ts";

export const idempotencyKeyForm = z.string().regex(/^[a-z0-9-]{1,255}$/, "Idempotency-Key: 1 to 255 of a-z, 0-9 and -");
/**
 * One node at a time may create under a key: the registrar grants it a turn, and grants the next turn only after this one was declined for good.
 *
 *   register(node) ──▶ turn 1 ──declined by its node──▶ register(node, after 1) ──▶ turn 2 ─▶ …
 *   register(node, from 500) ──▶ turn 501      the key was unknown, and every node has declined all turns up to 500
 */
const turn = z
  .number()
  .int()
  .min(0)
  .max(2 ** 52);
export const keyTurnForm = z.coerce.number().pipe(turn);

/**
 * Each registrar grants fewer turns of a key than this. A new one continues at the next multiple above the highest known turn, so that its
 * turns cannot collide with those that an unreachable registrar grants.
 */
export const TURNS_OF_A_REGISTRAR = 100_000;

export const registerKey = operation({
  name: "registerKey",
  method: "POST",
  path: "/cluster/keys/register",
  summary: "Says which node may create under an Idempotency-Key, and lets the named one where none may yet",
  input: z.object({
    key: idempotencyKeyForm,
    node: nodeIDForm.optional().describe("Absent: it is only looked up"),
    after: turn.optional().describe("The node of this turn began nothing and has declined it, or is dead"),
    from: turn.optional().describe("Every node has declined the turns up to this one"),
  }),
  output: z.object({
    registrar: nodeIDForm.describe("Another node than the one that was asked: it decides about this key"),
    node: nodeIDForm.optional(),
    turn: turn.optional(),
    isSure: z.boolean().describe("Without `node`: nobody has created under it. false: another node may have, before this one decided"),
    others: z.array(nodeIDForm).default([]).describe("Where it is not sure: the nodes that were part of the deployment when it started"),
  }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const declineKey = operation({
  name: "declineKey",
  method: "POST",
  path: "/cluster/keys/decline",
  summary: "This node creates nothing any more under the turns of an Idempotency-Key up to this one, unless it has done so or is about to",
  input: z.object({ key: idempotencyKeyForm, turn: turn.describe("0: it is only asked"), registrar: nodeIDForm }),
  output: z.object({
    isHere: z.boolean().describe("It has created, or is about to"),
    turn: turn.describe("The highest one that it knows"),
    registrar: nodeIDForm.optional().describe("Whose turns it takes now; unless that is the given one, it has declined nothing"),
    node: nodeIDForm.optional().describe("It was the registrar, and gave this one the turn"),
  }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "DISK_FULL"],
});
