// One chart over time, drawn by uPlot, with a table of its newest values for screen readers.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

export type Line = { readonly label: string; readonly values: readonly (number | null)[] };
export type ChartProps = {
  readonly title: string;
  /** Milliseconds since 1970. */
  readonly times: readonly number[];
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
  /** A value that the axis always includes, such as a limit. */
  readonly most?: number | undefined;
};

const HEIGHT = 150;
const colors = ["--accent", "--ok", "--warn", "--bad"];
const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart({ title, times, lines, format, most }: ChartProps): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = [times.map((at) => at / 1000), ...lines.map(({ values }) => values)] as uPlot.AlignedData;
  useEffect(() => {
    const own = element.current;
    if (own === null) return;
    const axis = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot(
      {
        width: Math.max(200, own.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false },
        scales: { y: { range: (_, least, greatest) => [Math.min(0, least ?? 0), Math.max(most ?? 0, (greatest ?? 1) * 1.1, 0.001)] } },
        axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(format) }],
        series: [
          {},
          ...lines.map(({ label }, at) => ({ label, stroke: color(colors[at % colors.length] ?? "--accent"), width: 1.5, points: { show: false } })),
        ],
      },
      data,
      own,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(200, own.clientWidth), height: HEIGHT }));
    observer.observe(own);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [lines.length]);
  useEffect(() => plot.current?.setData(data), [times.at(-1), times.length]);
  return (
    <figure class="chart">
      <figcaption>
        {title}
        {lines.map(({ label, values }, at) => {
          const newest = values.findLast((value) => value !== null);
          return (
            <span key={label} class={`series s${at % colors.length}`}>
              {lines.length === 1 ? "" : `${label} `}
              <strong>{newest == null ? "–" : format(newest)}</strong>
            </span>
          );
        })}
      </figcaption>
      <div ref={element} aria-hidden="true" />
    </figure>
  );
}
