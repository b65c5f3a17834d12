import { useMantineColorScheme } from '@mantine/core';
import { useEffect, useRef } from 'react';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { moment, number, tickTime } from '../logic/format';

export interface Line {
  label: string;
  values: (number | null)[];
  colour?: string;
  /** Drawn thin and pale, as the raw values behind a smoothed line. */
  faint?: boolean;
  dash?: boolean;
}

export const palette = ['#1c7ed6', '#2f9e44', '#e8590c', '#9c36b5', '#0c8599', '#c2255c', '#5c940d', '#6741d9'];

/** Steps are whole: there is none between two of them. */
const wholeSteps = [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6].map((zeros) => n * 10 ** zeros)).sort((a, b) => a - b);

/** Has the legend show the newest values while nothing is pointed at. */
function showNewest(u: uPlot): void {
  if (u.cursor.idx === null || u.cursor.idx === undefined) u.setLegend({ idxs: u.data.map((values) => (values as (number | null | undefined)[]).findLastIndex((v) => v !== null && v !== undefined)) });
}

/** Curves over steps or times. What is drawn is said in words for those who do not see it. */
export function Chart({ x, lines, height = 220, time = false, label, sync, legend = true }: { x: number[]; lines: Line[]; height?: number; time?: boolean; label: string; sync?: string; legend?: boolean }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { colorScheme } = useMantineColorScheme();
  const shape = JSON.stringify([lines.map((l) => [l.label, l.colour, l.faint, l.dash]), height, time, colorScheme, sync, legend]);
  const data = [x, ...lines.map((l) => l.values)] as uPlot.AlignedData;
  const latest = useRef(data);
  useEffect(() => {
    latest.current = data;
    plot.current?.setData(data);
    if (plot.current) showNewest(plot.current);
  });
  useEffect(() => {
    const el = box.current!;
    const style = getComputedStyle(el);
    const text = style.getPropertyValue('--mantine-color-text').trim() || '#333';
    const grid = style.getPropertyValue('--mantine-color-default-border').trim() || '#ddd';
    const axis: uPlot.Axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: '11px system-ui' };
    const u = new uPlot(
      {
        width: Math.max(el.clientWidth, 200),
        height,
        scales: { x: { time } },
        legend: { show: legend },
        cursor: { sync: sync === undefined ? undefined : { key: sync } },
        hooks: { setCursor: [showNewest] },
        axes: [time ? { ...axis, values: (_, ticks, __, ___, step) => ticks.map((t) => tickTime(t, step)) } : x.every(Number.isInteger) ? { ...axis, incrs: wholeSteps } : axis, { ...axis, size: 52, values: (_, ticks) => ticks.map((t) => number(t)) }],
        series: [
          time ? { value: (_: uPlot, t: number | null) => moment(t) } : { label: 'step' },
          ...lines.map((l, i) => ({
            label: l.label,
            stroke: l.colour ?? palette[i % palette.length],
            width: l.faint ? 1 : 2,
            alpha: l.faint ? 0.35 : 1,
            dash: l.dash ? [6, 4] : undefined,
            spanGaps: true,
            points: { show: lines.length <= 3 && l.values.filter((v) => v !== null).length < 20 },
            value: (_: uPlot, v: number | null) => number(v),
          })),
        ],
      },
      latest.current,
      el,
    );
    plot.current = u;
    showNewest(u);
    const watch = new ResizeObserver(() => {
      if (el.clientWidth > 0 && el.clientWidth !== u.width) u.setSize({ width: el.clientWidth, height });
    });
    watch.observe(el);
    return () => {
      watch.disconnect();
      u.destroy();
      plot.current = null;
    };
    // shape holds all that the drawing depends on besides the data
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [shape]);
  const said = lines
    .filter((l) => !l.faint)
    .map((l) => {
      const known = l.values.filter((v): v is number => v !== null);
      return known.length === 0 ? '' : `${l.label}: from ${number(known[0])} to ${number(known.at(-1))}`;
    })
    .filter(Boolean)
    .join('; ');
  return <div ref={box} role="img" aria-label={`${label}. ${said}`} style={{ minWidth: 0, overflow: 'hidden' }} />;
}
