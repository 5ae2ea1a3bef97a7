// Lists of any length: what is drawn is what is on the screen.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { number } from "./format.js";
import { Icon } from "./icons.js";

const OVERSCAN = 6;
const rowHeight = () => parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 32;
// As people count: topic-2 comes before topic-10.
const counting = new Map();
function natural(key) {
  if (!counting.has(key)) counting.set(key, key.replace(/\d+/g, (digits) => digits.padStart(10, "0")));
  return counting.get(key);
}
export const compare = (left, right) =>
  left === right ? 0 : left === null ? -1 : right === null ? 1 : left < right ? -1 : 1;

// Rows that match what is searched for, in the order of the chosen column.
export function useRows(all, search, text, initial, ranks = {}) {
  const [sort, setSort] = useState(initial);
  const wanted = search.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = wanted.length
    ? all.filter((row) => { const told = text(row).toLowerCase(); return wanted.every((word) => told.includes(word)); })
    : [...all];
  const [by, direction] = sort, rank = ranks[by] || ((row) => row[by] ?? null);
  rows.sort((left, right) => direction * compare(rank(left), rank(right)) || compare(natural(left.key), natural(right.key)));
  return [rows, sort, (key) => setSort([key, by === key ? -direction : 1])];
}

export const Filter = ({ search, onSearch, only, onOnly, troubled, shown, all, what }) => html`<div class="filter"><h2 class="hidden">${what}</h2>
  <label class="search"><${Icon} name="search"/><input type="search" id="search" placeholder="Filter" aria-label="filter" value=${search}
    onInput=${(event) => onSearch(event.target.value)}/></label>
  ${onOnly && html`<button type="button" class="toggle" aria-pressed=${only} disabled=${!troubled && !only} onClick=${() => onOnly(!only)}>Only trouble (${number(troubled)})</button>`}
  <span class="soft" role="status">${number(shown)} of ${number(all)} ${what}</span></div>`;

function Head({ name, columns, sort, onSort }) {
  const arrow = (key) => (sort[0] !== key ? "" : sort[1] > 0 ? " ▲" : " ▼");
  const order = (key) => (sort[0] !== key ? "none" : sort[1] > 0 ? "ascending" : "descending");
  return html`<div class=${"head " + name} role="row">${columns.map((column) => html`
    <span role="columnheader" class=${column.kind || ""} aria-sort=${order(column.key)}>
      <button type="button" onClick=${() => onSort(column.key)}>${column.title}${arrow(column.key)}</button></span>`)}</div>`;
}

export function List({ name, columns, rows, selected, onSelect, sort, onSort, empty }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const look = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(look);
    watcher.observe(box.current);
    look();
    return () => watcher.disconnect();
  }, []);
  const row = rowHeight(), index = selected ? rows.findIndex((each) => each.key === selected) : -1;
  useEffect(() => {
    if (index < 0) return;
    const { scrollTop, clientHeight } = box.current;
    if (index * row < scrollTop) box.current.scrollTop = index * row;
    else if ((index + 1) * row > scrollTop + clientHeight) box.current.scrollTop = (index + 1) * row - clientHeight;
  }, [selected]);
  const onKeyDown = (event) => {
    const page = Math.max(1, Math.floor(view.height / row) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }[event.key];
    if (!step || !rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const from = index < 0 ? (step > 0 ? -1 : 0) : index;
    onSelect(rows[Math.max(0, Math.min(rows.length - 1, from + step))].key);
  };
  const first = Math.max(0, Math.floor(view.top / row) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / row) + OVERSCAN);
  return html`<div class=${rows.length * row > view.height + 1 ? "list scrolls" : "list"} role="grid" aria-label=${name} aria-rowcount=${rows.length + 1}
    tabindex="0" onKeyDown=${onKeyDown} aria-activedescendant=${index < 0 ? undefined : `${name}-${index}`}>
    <div role="rowgroup"><${Head} name=${name} columns=${columns} sort=${sort} onSort=${onSort}/></div>
    <div class="rows" role="rowgroup" ref=${box} tabindex="-1" onScroll=${look} onFocus=${(event) => event.currentTarget.parentNode.focus()}>
      ${rows.length ? "" : html`<div class="nothing">${empty}</div>`}
      <div class="sizer" style=${{ height: `${rows.length * row}px` }}>
        ${rows.slice(first, last).map((each, at) => html`<div key=${each.key} id=${`${name}-${first + at}`} class=${"row " + name} role="row"
          aria-rowindex=${first + at + 2} aria-selected=${each.key === selected} style=${{ top: `${(first + at) * row}px` }}
          onClick=${() => onSelect(each.key === selected ? "" : each.key)}>
          ${columns.map((column) => html`<span role="gridcell" class=${column.kind || ""} title=${column.hint ? column.hint(each) : undefined}>${column.show(each)}</span>`)}</div>`)}
      </div>
    </div></div>`;
}

// The list, and beside it what is known of the row that is chosen.
export const Split = ({ list, title, onClose, children }) => html`<div class="split">${list}
  ${title && html`<section class="card details" role="region" aria-label="details">
    <div class="title"><h2>${title}</h2><button type="button" class="close" aria-label="close" onClick=${onClose}><${Icon} name="cross"/></button></div>
    ${children}</section>`}</div>`;
