// Takeovers as clients of the REST service see them: the leader is killed under puts, and every acknowledged key is read again.
import { setTimeout as sleep } from "node:timers/promises";
import type { Cluster } from "../packages/store/test/ha-cluster.ts";
import { startService } from "../packages/store/test/service.ts";

const WRITERS = 4;
const BEFORE = 200;
const AFTER = 50;
const VALUE = "v".repeat(4_096);

export type RestTakeovers = { readonly gaps: number[]; readonly acknowledged: number; readonly missing: number; readonly refused: number };

export async function restTakeovers(cluster: Cluster, rounds: number): Promise<RestTakeovers> {
  await cluster.inSync(1);
  await using service = await startService({
    flags: [`--master_server_address=${cluster.address}`, `--cluster_id=${cluster.clusterID}`, "--global_segment_size=512mb"],
  });
  const gaps: number[] = [];
  let [missing, refused] = [0, 0];
  const acknowledged: string[] = [];
  for (let round = 0; round < rounds; round++) {
    const leader = await cluster.inSync(1);
    const times: { readonly begunMs: number; readonly atMs: number }[] = [];
    let isOver = false;
    const writers = Array.from({ length: WRITERS }, async (_, writer) => {
      for (let at = 0; !isOver; at++) {
        const key = `rest-${round}-${writer}-${at}`;
        const begunMs = performance.now();
        const answer = await service.ask("PUT", "/api/put", { key, value: VALUE }).catch(() => undefined);
        if (answer?.status !== 200) {
          refused++;
          await sleep(2);
          continue;
        }
        acknowledged.push(key);
        times.push({ begunMs, atMs: performance.now() });
      }
    });
    const more = async (count: number) => {
      const wanted = times.length + count;
      while (times.length < wanted) await sleep(1);
    };
    await more(BEFORE);
    const killedMs = performance.now();
    await leader.kill();
    await more(AFTER);
    isOver = true;
    await Promise.all(writers);
    // A put that began before the kill and was answered after it counts: its client waited as well.
    gaps.push(Math.min(...times.filter(({ atMs }) => atMs > killedMs + 1).map(({ atMs }) => atMs)) - killedMs);
    await leader.start();
    await cluster.inSync(1);
  }
  for (const key of acknowledged) if ((await service.ask("GET", `/api/exist/${key}`)).body["exists"] !== true) missing++;
  return { gaps, acknowledged: acknowledged.length, missing, refused };
}
