import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";

const GOOD = new Set(["RUNNING", "SERVING", "ALIVE", "GO", "EXACT", "PRESERVED", "UP_TO_DATE", "EQUAL", "DRAINED"]);
const WARN = new Set(["PAUSED", "WAITING", "BACKOFF", "WAIT", "DRAINING", "STEADY", "FLOOR", "NOT_READY", "ACTIVE_ON_TARGET", "UNKNOWN"]);
export const tone = (word) => (GOOD.has(word) ? "good" : WARN.has(word) ? "warn" : "bad");
export const Chip = ({ word, count }) => html`<span class=${"chip " + tone(word)}>${count === undefined ? "" : count + " "}${word === "NO_GO" ? "NO-GO" : word}</span>`;
export const number = (value) => (value === null || value === undefined ? "?" : Math.round(value).toLocaleString("en"));
export const bytes = (value) => {
  if (value === null || value === undefined) return "?";
  for (const unit of ["B", "kB", "MB", "GB"]) { if (value < 1000 || unit === "GB") return `${value.toFixed(unit === "B" ? 0 : 1)} ${unit}`; value /= 1000; }
};
export const seconds = (value) => {
  if (value === null || value === undefined) return "?";
  if (value < 120) return `${value < 10 ? value.toFixed(2) : Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${(value / 3600).toFixed(1)} h` : `${(value / 86400).toFixed(1)} d`;
};

// A line without axes by uPlot; the number beside it is what a screen reader reads.
export function Spark({ title, now, samples, index }) {
  const place = useRef(null), plot = useRef(null);
  const color = () => getComputedStyle(document.documentElement).getPropertyValue("--accent").trim();
  const data = [samples.map((each) => each[0]), samples.map((each) => each[index])];
  useLayoutEffect(() => {
    plot.current = new uPlot({
      width: Math.max(40, place.current.clientWidth), height: 36, padding: [3, 0, 3, 0], legend: { show: false }, cursor: { show: false },
      axes: [{ show: false }, { show: false }], scales: { y: { range: (_, low, high) => [Math.min(0, low), Math.max(high, 1e-9)] } },
      series: [{}, { stroke: color, width: 1.5, points: { show: false } }],
    }, data, place.current);
    const watcher = new ResizeObserver(([entry]) => plot.current.setSize({ width: Math.max(40, entry.contentRect.width), height: 36 }));
    watcher.observe(place.current);
    return () => { watcher.disconnect(); plot.current.destroy(); };
  }, []);
  const newest = samples.length ? samples[samples.length - 1][0] : 0;
  useEffect(() => { plot.current.setData(data); }, [newest, samples.length]);
  return html`<div class="spark">${title}<b>${now}</b><div ref=${place} aria-hidden="true"></div></div>`;
}

// A list that draws only what is on the screen, whatever there is.
export function List({ name, columns, rows, selected, onSelect, sort, onSort, empty }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const size = () => parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 28;
  useLayoutEffect(() => {
    const look = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current);
    look();
    return () => watcher.disconnect();
  }, []);
  const row = size(), index = rows.findIndex((each) => each.key === selected);
  useEffect(() => {
    if (index < 0) return;
    const { scrollTop, clientHeight } = box.current;
    if (index * row < scrollTop) box.current.scrollTop = index * row;
    else if ((index + 1) * row > scrollTop + clientHeight) box.current.scrollTop = (index + 1) * row - clientHeight;
  }, [selected]);
  const onKeyDown = (event) => {
    const page = Math.max(1, Math.floor(view.height / row) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }[event.key];
    if (!step || !rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    onSelect(rows[Math.max(0, Math.min(rows.length - 1, (index < 0 ? (step > 0 ? -1 : 0) : index) + step))].key);
  };
  const first = Math.max(0, Math.floor(view.top / row) - 5), last = Math.min(rows.length, Math.ceil((view.top + view.height) / row) + 5);
  return html`<div class="list" role="grid" aria-label=${name} aria-rowcount=${rows.length + 1}>
    <div class=${"head " + name} role="row">${columns.map((column) => html`<button role="columnheader" class=${column.kind || ""}
      aria-sort=${sort && sort[0] === column.key ? (sort[1] > 0 ? "ascending" : "descending") : "none"}
      onClick=${() => onSort && onSort(column.key)}>${column.title}${sort && sort[0] === column.key ? (sort[1] > 0 ? " ▲" : " ▼") : ""}</button>`)}</div>
    <div class="rows" ref=${box} tabindex="0" onKeyDown=${onKeyDown} onScroll=${() => setView({ top: box.current.scrollTop, height: box.current.clientHeight })}>
      ${rows.length ? "" : html`<p class="soft">${empty}</p>`}
      <div class="sizer" ref=${(element) => element && (element.style.height = `${rows.length * row}px`)}>
        ${rows.slice(first, last).map((each, at) => html`<div key=${each.key} class=${"row " + name} role="row" aria-rowindex=${first + at + 2} aria-selected=${each.key === selected}
          ref=${(element) => element && (element.style.top = `${(first + at) * row}px`)} onClick=${() => onSelect(each.key)}>
          ${columns.map((column) => html`<span role="gridcell" class=${column.kind || ""} title=${column.hint ? column.hint(each) : undefined}>${column.show(each)}</span>`)}</div>`)}
      </div>
    </div></div>`;
}
