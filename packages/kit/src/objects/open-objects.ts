// Opens the object storage that the settings name.
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";
import type { Durability } from "../database.ts";
import { openDirectoryObjects } from "./directory.ts";
import type { Objects } from "./objects.ts";
import { openS3Objects } from "./s3.ts";
import { credentialsFrom } from "./s3-credentials.ts";
import type { ObjectsSettings } from "./settings.ts";

/** @throws SETTING_INVALID, with the expected form of the setting. */
export async function openObjects(settings: ObjectsSettings, durability: Durability, env: NodeJS.ProcessEnv): Promise<Objects> {
  const url = URL.canParse(settings.url) ? new URL(settings.url) : undefined;
  if (url?.protocol === "file:" && url.host === "") {
    return openDirectoryObjects(fileURLToPath(url), durability).catch((cause: Error) =>
      fail("SETTING_INVALID", `setting objects.url: ${settings.url} cannot be used: ${cause.message}`, { cause }),
    );
  }
  if (url?.protocol === "s3:" && url.host !== "") {
    return openS3Objects({
      url: settings.url,
      bucket: url.host,
      prefix: url.pathname.replace(/^\/+|\/+$/g, ""),
      endpoint: settings.endpoint === "" ? `https://s3.${settings.region}.amazonaws.com` : settings.endpoint,
      region: settings.region,
      pathStyle: settings.path_style,
      concurrency: settings.concurrency,
      credentials: credentialsFrom(settings.credentials_file, env),
    });
  }
  return fail("SETTING_INVALID", `setting objects.url: expected file:///DIR or s3://BUCKET/PREFIX, got ${JSON.stringify(settings.url)}`);
}
