// A line by uPlot over the last minutes. The number above it is what a screen reader reads.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { joined, seconds } from "./format.js";

const SHORTEST_SECONDS = 60;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const height = (place) => Math.max(24, place.clientHeight);

function options(place, hover, limit) {
  return {
    width: Math.max(40, place.clientWidth),
    height: height(place),
    padding: [4, 4, 1, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
    axes: [{ show: false }, { show: false }],
    scales: {
      x: { time: false, range: (_, low, high) => [Math.min(low, high - SHORTEST_SECONDS), high] },
      y: { range: (_, low, high) => [0, Math.max(high, 1e-9) * 1.2] },
    },
    series: [{}, { stroke: () => css("--accent"), fill: () => css("--accent-soft"), width: 1.5, points: { show: false } }],
    hooks: { setCursor: [(plot) => hover(plot.cursor.idx ?? null)], draw: [newest, ...(limit ? [(plot) => bound(plot, limit)] : [])] },
  };
}

// A line at what should not be passed, where it is in the picture.
function bound(plot, limit) {
  const { left, top, width, height: tall } = plot.bbox, y = plot.valToPos(limit, "y", true);
  if (y < top || y > top + tall) return;
  plot.ctx.save();
  plot.ctx.beginPath();
  plot.ctx.setLineDash([4, 4]);
  plot.ctx.strokeStyle = css("--warn");
  plot.ctx.moveTo(left, y);
  plot.ctx.lineTo(left + width, y);
  plot.ctx.stroke();
  plot.ctx.restore();
}

// A dot at what is true now.
function newest(plot) {
  const last = plot.data[0].length - 1;
  if (last < 0 || plot.data[1][last] === null || plot.data[1][last] === undefined) return;
  const x = plot.valToPos(plot.data[0][last], "x", true), y = plot.valToPos(plot.data[1][last], "y", true);
  plot.ctx.save(); // uPlot remembers what it has set
  plot.ctx.beginPath();
  plot.ctx.fillStyle = css("--accent");
  plot.ctx.arc(x, y, 2.5 * devicePixelRatio, 0, 2 * Math.PI);
  plot.ctx.fill();
  plot.ctx.restore();
}

function caption(times, values, hover, show) {
  const known = values.filter((value) => value !== null && value !== undefined);
  if (hover !== null && values[hover] !== undefined) {
    const ago = times[times.length - 1] - times[hover];
    return `${ago ? `${joined(seconds(ago))} ago` : "now"}: ${values[hover] === null ? "not known" : show(values[hover])}`;
  }
  if (known.length < 2) return "no history yet";
  const span = Math.max(SHORTEST_SECONDS, times[times.length - 1] - times[0]);
  const low = show(Math.min(...known)), high = show(Math.max(...known));
  return `last ${joined(seconds(span))}: ${low === high ? low : `${low} – ${high}`}`;
}

export function Spark({ samples, index, show, limit }) {
  const place = useRef(null), plot = useRef(null);
  const [hover, setHover] = useState(null);
  const times = samples.map((each) => each[0]), values = samples.map((each) => each[index] ?? null);
  useLayoutEffect(() => {
    plot.current = new uPlot(options(place.current, setHover, limit), [times, values], place.current);
    const watcher = new ResizeObserver(() => {
      plot.current.setSize({ width: Math.max(40, place.current.clientWidth), height: height(place.current) });
    });
    watcher.observe(place.current);
    return () => { watcher.disconnect(); plot.current.destroy(); };
  }, []);
  const last = times.length ? times[times.length - 1] : 0;
  useEffect(() => { plot.current.setData([times, values]); }, [last, times.length]);
  return html`<div class="spark"><div class="plot" ref=${place} aria-hidden="true"></div>
    <div class="caption">${caption(times, values, hover, show)}</div></div>`;
}
