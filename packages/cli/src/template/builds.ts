// `svc template logs` and `cancel`: prints a build's log, and cancels a build.
import type { SvcClient } from "@svc/contract/client.ts";
import type { BuildName } from "@svc/contract/client-templates.ts";
import { fail } from "@svc/contract/failures.ts";
import { type OutputFormat, outputFormat, printJSONLine } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, remark } from "../output/complain.ts";
import { lineOf } from "./build-lines.ts";

type Options = AccessOptions & { follow?: true; output?: OutputFormat };

export function templateLogs(reference: string, build: string | undefined, { follow, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const name = await buildOf(client, reference, build);
    const { buildID } = name;
    const entries = client.templates.follow(name, { follow: follow === true });
    const isText = outputFormat(output) === "table";
    for (;;) {
      const next = await entries.next();
      if (next.done !== true) {
        if (isText) process.stdout.write(`${lineOf(next.value)}\n`);
        else printJSONLine(next.value);
        continue;
      }
      const end = next.value;
      if (end?.status === "error") {
        remark(`svc: build ${buildID} failed${end.reason === undefined ? "" : `: ${end.reason.message}`}`);
        return EXIT_FAILURE;
      }
      if (end === undefined) remark(`build ${buildID} is still running; svc template logs -f ${reference} follows it`);
      return 0;
    }
  });
}

/** Returns the given build, or the template's newest. @throws BUILD_NOT_FOUND. */
export async function buildOf(client: SvcClient, reference: string, build: string | undefined): Promise<BuildName> {
  const { templateID, builds } = await client.templates.get(reference);
  const newest = builds.toSorted((a, b) => Date.parse(b.createdAt) - Date.parse(a.createdAt))[0]?.buildID;
  return { templateID, buildID: build ?? newest ?? fail("BUILD_NOT_FOUND", `template ${reference} was never built`) };
}

export function cancelBuild(reference: string, build: string | undefined, access: AccessOptions): Promise<number> {
  return withClient(access, async (client) => {
    const name = await buildOf(client, reference, build);
    await client.templates.cancel(name);
    process.stdout.write(`${name.buildID}\n`);
    return 0;
  });
}
