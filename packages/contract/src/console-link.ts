// The operation by which `svc console` gets a link that signs a browser in once.
import { z } from "zod";
import { operation } from "./operation.ts";

export const createConsoleLink = operation({
  name: "createConsoleLink",
  method: "POST",
  path: "/console/api/links",
  summary: "Creates a link that signs a browser in to the console, once and within some minutes",
  input: z.object({ readOnly: z.boolean().optional().describe("true: the session changes nothing and shows no content of sandboxes") }),
  output: z.object({ path: z.string(), seconds: z.number().int() }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "ROUTE_NOT_FOUND"],
});
