// `svc openapi`: prints the API as an OpenAPI document.

import { streamEvents } from "@svc/contract/observe.ts";
import { openapi } from "@svc/contract/openapi.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";
import { printJSON } from "@svc/contract/table.ts";
import { version } from "./version.ts";

export async function printOpenAPI(): Promise<number> {
  printJSON(openapi({ ...nodeOperations, streamEvents }, { title: "svc sandbox platform", version: version() }));
  return 0;
}
