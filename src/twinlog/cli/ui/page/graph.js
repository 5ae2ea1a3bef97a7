// Where clusters, flows and their labels stand in a graph. Pure: sizes in, places in pixels out.
export const NODE = { width: 150, height: 62 };
export const LABEL = { width: 158, height: 42 };
const WIDEST_STEP = 460, NARROWEST_NODE = 96, ROW = 124, ROW_TWO_WAY = 164, DOWN = 196, APART = 34;
const PLACES_ON_A_CURVE = [0.5, 0.35, 0.65, 0.24, 0.76];

// Flows lead from rank to rank; one that leads back to an earlier cluster does not count.
export function ranksOf(names, edges) {
  const ranks = {}, onPath = new Set();
  const visit = (name, rank) => {
    if (onPath.has(name) || (ranks[name] ?? -1) >= rank) return;
    ranks[name] = rank;
    onPath.add(name);
    for (const [source, target] of edges) if (source === name) visit(target, rank + 1);
    onPath.delete(name);
  };
  const entered = new Set(edges.map(([, target]) => target));
  for (const name of names) if (!entered.has(name)) visit(name, 0);
  for (const name of names) if (!(name in ranks)) visit(name, 0);
  return ranks;
}

const isTwoWay = (edges, [source, target]) => edges.some(([from, to]) => from === target && to === source);

function places(names, edges, width) {
  const ranks = ranksOf(names, edges), columns = [], found = {};
  for (const name of names) (columns[ranks[name]] ||= []).push(name);
  const ranked = columns.filter(Boolean), most = Math.max(...ranked.map((each) => each.length)), steps = ranked.length - 1;
  if (width >= NODE.width + steps * (NODE.width + LABEL.width + 20) + 8) { // from left to right
    const step = steps ? Math.min(WIDEST_STEP, (width - NODE.width - 8) / steps) : 0, left = (width - step * steps) / 2;
    const height = most * (edges.some((edge) => isTwoWay(edges, edge)) ? ROW_TWO_WAY : ROW) + 40;
    ranked.forEach((column, rank) => column.forEach((name, at) => { found[name] = [left + rank * step, (height * (at + 0.5)) / column.length]; }));
    return { at: found, node: NODE, across: true, height };
  }
  const room = width / most - 16, rows = room >= NARROWEST_NODE ? ranked : ranked.flat().map((name) => [name]); // from top to bottom
  const node = { width: Math.min(NODE.width, rows === ranked ? room : width - 8), height: NODE.height };
  rows.forEach((row, rank) => row.forEach((name, at) => { found[name] = [(width * (at + 0.5)) / row.length, node.height / 2 + 6 + rank * DOWN]; }));
  return { at: found, node, across: false, height: (rows.length - 1) * DOWN + node.height + 12 };
}

// The four points of a curve from border to border; a flow and its reverse keep apart.
function curve({ at, node, across }, [source, target], twoWay) {
  const along = across ? 0 : 1, aside = 1 - along, half = [node.width / 2, node.height / 2];
  const from = [...at[source]], to = [...at[target]], forward = to[along] >= from[along] ? 1 : -1;
  if (Math.abs(to[along] - from[along]) < 1) { // side by side in a rank: around the outside
    const out = half[along] + 70, start = [...from], end = [...to];
    start[along] += half[along]; end[along] += half[along] + 3;
    const c1 = [...start], c2 = [...end];
    c1[along] = c2[along] = from[along] + out;
    return [start, c1, c2, end];
  }
  // On the left of where it leads to.
  const side = (twoWay ? APART : 0) * (across ? -forward : forward);
  from[along] += forward * half[along]; to[along] -= forward * (half[along] + 3);
  from[aside] += side / 3; to[aside] += side / 3;
  const reach = Math.abs(to[along] - from[along]) / 2, c1 = [...from], c2 = [...to];
  c1[along] += forward * reach; c2[along] -= forward * reach;
  c1[aside] += side; c2[aside] += side;
  return [from, c1, c2, to];
}

const on = ([a, b, c, d], t) => [0, 1].map((axis) =>
  (1 - t) ** 3 * a[axis] + 3 * (1 - t) ** 2 * t * b[axis] + 3 * (1 - t) * t ** 2 * c[axis] + t ** 3 * d[axis]);
const overlap = (left, right) => Math.abs(left.x - right.x) * 2 < left.width + right.width && Math.abs(left.y - right.y) * 2 < left.height + right.height;

// A label stands on its curve where nothing else does; where there is no room it is left out.
function labelOn(points, taken, width) {
  for (const t of PLACES_ON_A_CURVE) {
    const [x, y] = on(points, t), wide = Math.min(LABEL.width, width - 4);
    const box = { x: Math.max(wide / 2 + 2, Math.min(width - wide / 2 - 2, x)), y, width: wide, height: LABEL.height };
    if (!taken.some((other) => overlap(box, other))) return box;
  }
  return null;
}

// A passing edge keeps clear of clusters between its ends.
function clear(points, { at, node, across }, edge) {
  const between = Object.entries(at).filter(([name]) => !edge.includes(name)).map(([, [x, y]]) => ({ x, y, ...node }));
  const hits = [0.2, 0.35, 0.5, 0.65, 0.8].some((t) => { const [x, y] = on(points, t); return between.some((box) => overlap({ x, y, width: 8, height: 8 }, box)); });
  if (!hits) return points;
  const aside = across ? 1 : 0, bend = across ? node.height * 1.9 : node.width * 1.1;
  const [from, c1, c2, to] = points.map((point) => [...point]);
  c1[aside] += bend; c2[aside] += bend;
  return [from, c1, c2, to];
}

export function layout(names, edges, width) {
  const found = places(names, edges, width);
  const taken = Object.values(found.at).map(([x, y]) => ({ x, y, ...found.node }));
  const drawn = edges.map((edge) => {
    const points = clear(curve(found, edge, isTwoWay(edges, edge)), found, edge), label = labelOn(points, taken, width);
    if (label) taken.push(label);
    const [from, c1, c2, to] = points;
    return { path: `M${from}C${c1} ${c2} ${to}`, label };
  });
  return { ...found, edges: drawn };
}
