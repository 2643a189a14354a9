// `svc doctor` as a program: exit code 1 when no sandbox can run on this host.
import { doctorMain } from "./doctor.ts";

export function main(argv: readonly string[]): Promise<number> {
  return doctorMain(argv);
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2));
