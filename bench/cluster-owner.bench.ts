// A paused sandbox that is in object storage while its node is killed: how long a client's connect through the gateway takes, and whether one
// is refused. Needs root with runsc and etcd. `./svc bench cluster-owner`; part of `./svc bench cluster`.
import { setTimeout as sleep } from "node:timers/promises";
import { connectSandbox, pauseSandbox } from "@svc/contract/lifecycle.ts";
import { createSandbox, deleteSandbox, getSandbox } from "@svc/contract/sandbox.ts";
import { saidBy, startCluster } from "./cluster-nodes.ts";
import { median, progress, type Row, report } from "./report.ts";

const ROUNDS = 30;
/** Ten times the bound. */
const ANSWER_MS = 100_000;
const ASK_MS = 20;

await using cluster = await startCluster({ runtime: "gvisor", nodes: 2, gateways: 1, hasObjects: true, flags: [] });
const [gateway] = cluster.gateways;
if (gateway === undefined) throw new Error("the cluster has no gateway");

/** Resolves once the node has exported the paused sandbox. */
async function exported(url: string, sandboxID: string): Promise<void> {
  const gone = new AbortController();
  const answer = await fetch(`${url}/events?after=0&sandboxID=${sandboxID}&types=sandbox.exported`, {
    headers: { "x-api-key": gateway?.apiKey ?? "" },
    signal: gone.signal,
  });
  let text = "";
  for await (const chunk of answer.body ?? []) {
    text += Buffer.from(chunk).toString();
    if (text.includes('"sandbox.exported"')) break;
  }
  gone.abort();
}

const took: number[] = [];
let [refused, lost] = [0, 0];
for (let round = 0; round < ROUNDS; round++) {
  progress(`round ${round + 1} of ${ROUNDS}`);
  const owner = cluster.nodes[round % 2] as (typeof cluster.nodes)[number];
  const made = await owner.call(createSandbox, { templateID: "base", timeout: 600 });
  const { sandboxID } = made;
  const word = `round-${round}`;
  await saidBy(gateway.url, made, `echo ${word} > /dev/shm/word; nohup sleep 1000 > /dev/null 2>&1 & echo $! > /dev/shm/pid`);
  await owner.call(pauseSandbox, { sandboxID });
  await exported(owner.url, sandboxID);
  await gateway.call(getSandbox, { sandboxID });
  await owner.kill("SIGKILL");
  const begunMs = performance.now();
  for (;;) {
    const why = await gateway.call(connectSandbox, { sandboxID, timeout: 600 }).then(
      () => undefined,
      (error: unknown) => String(error),
    );
    if (why === undefined) break;
    refused++;
    if (performance.now() - begunMs > ANSWER_MS) throw new Error(`no connect was answered: ${why}`);
    await sleep(ASK_MS);
  }
  took.push(performance.now() - begunMs);
  const said = await saidBy(gateway.url, made, "cat /dev/shm/word; kill -0 $(cat /dev/shm/pid) && echo alive").catch(String);
  if (said !== `${word}\nalive`) lost++;
  await gateway.call(deleteSandbox, { sandboxID });
  await owner.start();
  await cluster.allReady();
}
const rows: Row[] = [
  { what: "owner of a paused, exported sandbox killed: connect answers, p50", value: median(took), unit: "ms", samples: ROUNDS },
  { what: "the longest", value: Math.max(...took), unit: "ms", goal: { atMost: 10_000 } },
  { what: "connects that were refused meanwhile", value: refused, unit: "", goal: { atMost: 0 } },
  { what: "sandboxes without their memory afterwards", value: lost, unit: "", goal: { atMost: 0 }, note: `of ${ROUNDS}` },
];
report("cluster-owner", rows, { took, refused, lost });
