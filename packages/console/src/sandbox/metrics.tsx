// CPU, memory and disk of one sandbox over the last hour.
import type { SandboxMetric } from "@svc/contract/observe.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chart } from "../chart.tsx";
import { bytes } from "../format.ts";
import { Empty, Problem, Scroll } from "../parts.tsx";
import { call, messageOf } from "../session.ts";
import type { TabProps } from "./sandbox.tsx";

const AGAIN_MS = 5_000;

export function SandboxMetrics({ row }: TabProps): JSX.Element {
  const [samples, setSamples] = useState<readonly SandboxMetric[]>();
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const read = () =>
      call<SandboxMetric[]>("getSandboxMetrics", { sandboxID: row.id }).then(
        (found) => {
          setSamples(found);
          setProblem("");
        },
        (error: unknown) => setProblem(messageOf(error)),
      );
    void read();
    const timer = setInterval(() => void (document.hidden || row.state === "ended" || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, [row.id, row.state]);
  const newest = samples?.at(-1);
  if (newest === undefined || samples === undefined)
    return problem === "" ? <Empty title="No sample is there yet; the first comes within seconds." /> : <Problem error={problem} />;
  const times = samples.map(({ timestampUnix }) => timestampUnix * 1000);
  const line = (label: string, member: "cpuUsedPct" | "memUsed" | "memCache" | "diskUsed") => ({ label, values: samples.map((sample) => sample[member]) });
  return (
    <Scroll label="Metrics" kind="charts">
      <Problem error={problem} />
      <Chart
        title={`CPU, of ${newest.cpuCount * 100} %`}
        times={times}
        lines={[line("used", "cpuUsedPct")]}
        format={(value) => `${Math.round(value)} %`}
        most={newest.cpuCount * 100}
      />
      <Chart
        title={`Memory, of ${bytes(newest.memTotal)}`}
        times={times}
        lines={[line("used", "memUsed"), line("cache", "memCache")]}
        format={bytes}
        most={newest.memTotal}
      />
      <Chart title={`Disk, of ${bytes(newest.diskTotal)}`} times={times} lines={[line("used", "diskUsed")]} format={bytes} most={newest.diskTotal} />
    </Scroll>
  );
}
