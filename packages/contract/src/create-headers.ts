// The headers of svc's own on a create request, in addition to the body that E2B clients send.
import { z } from "zod";
import { idempotencyKeyForm, keyTurnForm } from "./create-keys.ts";
import { sourceID } from "./fields.ts";

/** Used between the servers of a deployment and left out of the API reference for clients. */
const ofGateway = { internal: true } as const;

export const createHeaderFields = {
  idempotencyKey: idempotencyKeyForm.optional(),
  keyTurn: keyTurnForm.optional().meta(ofGateway).describe("From a gateway: the turn in which this node may create under the Idempotency-Key"),
  nodeLabels: z
    .string()
    .regex(/^[\w./-]{1,64}=[\w./:-]{0,200}(,[\w./-]{1,64}=[\w./:-]{0,200}){0,15}$/, "Svc-Node-Labels: NAME=VALUE, joined by commas")
    .optional()
    .describe("A gateway places the sandbox on a node with these labels; a node by itself does not look at them"),
  buildID: sourceID.optional().meta(ofGateway).describe("From a gateway: the build or snapshot that the name means, on a node that did not make it"),
  sourceName: z.string().max(256).optional().meta(ofGateway).describe("From a gateway: the name that the snapshot bears, on a node that did not take it"),
};

export const createHeaders = {
  idempotencyKey: "idempotency-key",
  keyTurn: "svc-key-turn",
  nodeLabels: "svc-node-labels",
  buildID: "svc-build-id",
  sourceName: "svc-source-name",
} as const;
