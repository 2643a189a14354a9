// A program that fills a folder, ended when that holds more than it may: an image says nothing binding of its size.
import type { RunResult, Spawner } from "@svc/kit/spawn.ts";

const TOO_MUCH = 77;

/**
 * Arguments: folder, bound in MB, bound in seconds, program... What the file system has less is cheap to ask and counts others' files
 * too, so what the folder holds is asked only then. The program has its own bound in time: a shell that is killed would leave it. timeout passes a TERM on.
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

/** Resolves to undefined when the folder held more than `mostMB`; the program was ended then. */
export async function runInto(spawner: Spawner, folder: string, mostMB: number, argv: readonly string[], timeoutMs: number): Promise<RunResult | undefined> {
  const seconds = String(Math.max(1, Math.ceil(timeoutMs / 1000)));
  const result = await spawner.run(["/bin/sh", "-c", script, "sh", folder, String(mostMB), seconds, ...argv], { timeoutMs });
  return result.code === TOO_MUCH ? undefined : result;
}
