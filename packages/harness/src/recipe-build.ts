// Follows builds of recipes in tests: until one begins a step, and until its end.
import { SvcClient } from "@svc/contract/client.ts";
import { Failure } from "@svc/contract/failures.ts";
import type { TestNode } from "./node.ts";
import { until } from "./until.ts";

type Entry = Pick<TestNode, "url" | "apiKey">;
/** Packages are downloaded and unpacked, with other tests beside it. */
const BUILD_MS = 3_600_000;

/** Returns the builds of a template, newest first; none before its first use. */
export async function buildsOf({ url, apiKey }: Entry, name: string) {
  const { templates } = new SvcClient({ baseURL: url, apiKey });
  return templates.get(name).then(
    ({ builds }) => builds,
    (error: unknown) => {
      if (error instanceof Failure && error.name === "TEMPLATE_NOT_FOUND") return [];
      throw error;
    },
  );
}

/** Waits until the newest build's log has a line that matches. */
export async function buildSays(entry: Entry, name: string, line: RegExp): Promise<void> {
  const { templates } = new SvcClient({ baseURL: entry.url, apiKey: entry.apiKey });
  const { templateID, buildID } = await until(`a build of ${name}`, async () => {
    const [newest] = await buildsOf(entry, name);
    return newest === undefined ? undefined : { templateID: (await templates.get(name)).templateID, buildID: newest.buildID };
  });
  for await (const { message } of templates.follow({ templateID, buildID })) if (line.test(message)) return;
  throw new Error(`the build of ${name} ended without the line ${line}`);
}

/** Follows the newest build to its end. @throws with its last lines if it fails. */
export async function recipeBuilt(entry: Entry, name: string): Promise<void> {
  const { templates } = new SvcClient({ baseURL: entry.url, apiKey: entry.apiKey });
  const { templateID, builds } = await templates.get(name);
  const entries = templates.follow({ templateID, buildID: builds[0]?.buildID ?? "" });
  const lines: string[] = [];
  const end = performance.now() + BUILD_MS;
  while (performance.now() < end) {
    const next = await entries.next();
    if (next.done !== true) lines.push(next.value.message);
    else if (next.value?.status === "ready") return;
    else throw new Error(`${name} was not built: ${next.value?.reason?.message}\n${lines.slice(-40).join("\n")}`);
  }
  throw new Error(`${name} was not built within ${BUILD_MS} ms`);
}
