// Runs a program that fills a folder and stops it when the folder exceeds a bound, since an image's stated size is not reliable.
import type { RunResult, Spawner } from "@svc/kit/spawn.ts";

const TOO_MUCH = 77;

/**
 * Arguments: folder, bound in MB, bound in seconds, program... The file system's free space is cheap to read but also counts other files, so the
 * folder is measured only when the free space has shrunk by the bound. `timeout` bounds the program itself, because a killed shell would leave it
 * running; it passes a TERM on.
 */
const script = `folder=$1 most=$2 seconds=$3; shift 3
free() { df -Pm -- "$folder" | awk 'NR == 2 { print $4 }'; }
full() { [ "$(du -smx -- "$folder" | cut -f1)" -gt "$most" ]; }
before=$(free)
timeout -s KILL "$seconds" "$@" & program=$!
while kill -0 "$program" 2>/dev/null; do
  sleep 0.1
  if [ $((before - $(free))) -gt "$most" ] && full; then kill -TERM "$program"; wait "$program"; exit ${TOO_MUCH}; fi
done
wait "$program" || exit $?
if full; then exit ${TOO_MUCH}; fi`;

/** Resolves to undefined if the folder exceeded `mostMB`, which ends the program. */
export async function runInto(spawner: Spawner, folder: string, mostMB: number, argv: readonly string[], timeoutMs: number): Promise<RunResult | undefined> {
  const seconds = String(Math.max(1, Math.ceil(timeoutMs / 1000)));
  const result = await spawner.run(["/bin/sh", "-c", script, "sh", folder, String(mostMB), seconds, ...argv], { timeoutMs });
  return result.code === TOO_MUCH ? undefined : result;
}
