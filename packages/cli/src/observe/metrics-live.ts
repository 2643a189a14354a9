// The live view of `svc metrics` on a terminal: refreshed every second, ended by q or Ctrl-C.
import type { SvcClient } from "@svc/contract/client.ts";
import { fail } from "@svc/contract/failures.ts";
import { openScreen } from "@svc/contract/screen.ts";
import { manyFrame, oneFrame } from "./metrics-view.ts";
import { Watch } from "./metrics-watch.ts";

/** `targets` undefined means all sandboxes. */
export async function showLive(client: SvcClient, targets: readonly string[] | undefined): Promise<number> {
  const watch = new Watch(client, targets);
  // The first refresh precedes the full-screen view, so that its failure is reported as a line.
  await watch.refresh();
  if (targets !== undefined && watch.missing.length > 0) fail("SANDBOX_NOT_FOUND", `there is no sandbox ${watch.missing.join(", ")}; svc list lists them`);
  let isOver = false;
  const draw = () => {
    const note = watch.failure === undefined ? (isOver ? "ended" : "") : `trying again: ${watch.failure.message.split(";")[0]}`;
    const all = watch.all();
    const [only] = all;
    screen.draw(targets?.length === 1 && only !== undefined ? oneFrame(only, note, screen, Date.now()) : manyFrame(all, note, screen, Date.now()));
  };
  const screen = openScreen(draw);
  let hasLeft = false;
  const left = screen.left.then(() => {
    hasLeft = true;
  });
  try {
    for (;;) {
      isOver = targets !== undefined && watch.missing.length === targets.length;
      draw();
      if (isOver) return 0;
      await Promise.race([watch.wait(), left]);
      if (hasLeft) return 0;
      await Promise.race([watch.refresh(), left]);
      if (hasLeft) return 0;
    }
  } finally {
    screen.close();
  }
}
