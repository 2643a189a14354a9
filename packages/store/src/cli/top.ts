// `svc store top`: the master's activity, redrawn in place on a terminal, printed once in a pipe; with JSON one line per sample.
import { setTimeout as sleep } from "node:timers/promises";
import { styleText } from "node:util";
import { asFailure } from "@svc/contract/failures.ts";
import { openScreen, type Screen } from "@svc/contract/screen.ts";
import { byteSize, plain, printJSONLine } from "@svc/contract/table.ts";
import { type Arguments, operands, wholeNumber } from "./arguments.ts";
import { usage } from "./inspect.ts";
import { type MasterMetrics, metricsFrom, type Rate, ratesBetween } from "./master-metrics.ts";
import { segmentDetails } from "./segments.ts";

const MAX_INTERVAL_S = 3600;
const SHOWN_HOLDERS = 32;

type Look = {
  readonly metrics: MasterMetrics;
  readonly rates: readonly Rate[];
  readonly evictedPerSecond: number;
  readonly holders: readonly {
    readonly name: string;
    readonly sizeBytes: number;
    readonly usedBytes: number;
    readonly status: string;
    readonly readable: boolean;
  }[];
};

export async function top(args: Arguments): Promise<number> {
  operands(args);
  const everyMs = wholeNumber(args, "interval", 1, MAX_INTERVAL_S) * 1000;
  let before = await metricsFrom(args);
  if (args.isJSON) {
    while (true) {
      await sleep(everyMs);
      const look = await lookAt(args, before);
      before = look.metrics;
      const { operations: _, atMs: __, ...metrics } = look.metrics;
      printJSONLine({ time: new Date().toISOString(), ...metrics, evictedPerSecond: look.evictedPerSecond, operations: look.rates, holders: look.holders });
    }
  }
  if (!process.stdout.isTTY) {
    await sleep(everyMs);
    process.stdout.write(`${linesOf(args.url, await lookAt(args, before)).join("\n")}\n`);
    return 0;
  }
  let lines: string[] = [`${args.url}: looking …`];
  const screen: Screen = openScreen(() => screen.draw(lines));
  const left = screen.left.then(() => "left" as const);
  screen.draw(lines);
  while ((await Promise.race([left, sleep(everyMs)])) !== "left") {
    try {
      const look = await lookAt(args, before);
      before = look.metrics;
      lines = linesOf(args.url, look);
    } catch (error) {
      // An unreachable master is shown rather than ending the command, since people watch for exactly that.
      lines = [styleText("red", asFailure(error).message, { stream: process.stdout }), "", ...lines.filter((line) => !/answers|answered/.test(line))];
    }
    screen.draw(lines);
  }
  screen.close();
  return 0;
}

async function lookAt(args: Arguments, before: MasterMetrics): Promise<Look> {
  const [metrics, rows] = await Promise.all([metricsFrom(args), segmentDetails(args)]);
  const evicted = Math.max(0, metrics.evictedKeys - before.evictedKeys);
  return {
    metrics,
    rates: ratesBetween(before, metrics),
    evictedPerSecond: evicted / Math.max(0.001, (metrics.atMs - before.atMs) / 1000),
    holders: rows.map((row) => ({
      name: row.segment_name,
      sizeBytes: row.size_bytes,
      usedBytes: row.allocator_used_bytes,
      status: row.status,
      readable: row.readable !== false,
    })),
  };
}

function linesOf(url: string, { metrics, rates, evictedPerSecond, holders }: Look): string[] {
  const bold = (text: string) => styleText("bold", text, { stream: process.stdout });
  const sum = rates.reduce((total, rate) => total + rate.perSecond, 0);
  const us = (value: number) => (Number.isFinite(value) ? `${value.toFixed(value < 100 ? 1 : 0)} us` : "long");
  return [
    `${bold(url)}   ${sum.toFixed(0)} operations/s   ${metrics.connections} connections   q leaves`,
    `keys ${metrics.keys}   used ${usage(metrics.usedBytes, metrics.capacityBytes)} of ${byteSize(metrics.capacityBytes)}   ` +
      `evicted ${metrics.evictedKeys} (${evictedPerSecond.toFixed(0)}/s)   lost ${metrics.lostKeys}   unfinished puts ${metrics.unfinishedPuts}`,
    "",
    bold(`${"OPERATION".padEnd(24)}${"PER SECOND".padStart(12)}${"MEAN".padStart(12)}${"P99 BELOW".padStart(12)}${"FAILED/S".padStart(10)}`),
    ...rates.map(
      (rate) =>
        `${rate.operation.padEnd(24)}${rate.perSecond.toFixed(rate.perSecond < 10 ? 1 : 0).padStart(12)}${us(rate.meanUs).padStart(12)}` +
        `${us(rate.p99Us).padStart(12)}${rate.failedPerSecond.toFixed(0).padStart(10)}`,
    ),
    "",
    bold(`${"HOLDER".padEnd(24)}${"SIZE".padStart(12)}${"USED".padStart(22)}  STATUS`),
    ...holders
      .slice(0, SHOWN_HOLDERS)
      .map(
        ({ name, sizeBytes, usedBytes, status, readable }) =>
          `${plain(name).padEnd(24)}${byteSize(sizeBytes).padStart(12)}${usage(usedBytes, sizeBytes).padStart(22)}  ${status}${readable ? "" : ", not readable"}`,
      ),
    ...(holders.length > SHOWN_HOLDERS ? [`and ${holders.length - SHOWN_HOLDERS} more`] : []),
  ];
}
