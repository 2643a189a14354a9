// Renamed settings: a flag, file or variable that uses a former name is refused, and the error gives the present name.
import { fail } from "@svc/contract/failures.ts";

/** The former name of a setting, and its present name. */
export const renamedSettings: ReadonlyMap<string, string> = new Map([["pool.blanks", "pool.precreated"]]);

/** Returns a hint for an unknown setting that was renamed, or undefined. */
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
