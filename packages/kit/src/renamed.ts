// Settings that have another name now: a flag, file or variable with the former name is refused with the present one.
import { fail } from "@svc/contract/failures.ts";

/** The former name of a setting, and its present name. */
export const renamedSettings: ReadonlyMap<string, string> = new Map([["pool.blanks", "pool.precreated"]]);

/** What to say about an unknown setting that was renamed, or undefined. */
export function renamedHint(name: string): string | undefined {
  const present = renamedSettings.get(name);
  return present === undefined ? undefined : `${name} is called ${present} now`;
}

/** @throws SETTING_INVALID for an environment variable with the former name of a setting. */
export function refuseRenamed(env: Readonly<Record<string, string | undefined>>, variableOf: (section: string, key: string) => string): void {
  for (const [former, present] of renamedSettings) {
    const [given, expected] = [former, present].map((name) => variableOf(...(name.split(".") as [string, string])));
    if (given !== undefined && env[given] !== undefined && env[given] !== "")
      fail("SETTING_INVALID", `environment variable ${given}: this setting is called ${expected} now`);
  }
}
