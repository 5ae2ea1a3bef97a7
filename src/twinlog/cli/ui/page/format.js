// Figures as people read them: a text and its unit. null and undefined are not known: "?".
const KNOWN = (value) => value !== null && value !== undefined;

export const number = (value) => (KNOWN(value) ? Math.round(value).toLocaleString("en") : "?");

export function amount(value) {
  if (!KNOWN(value)) return ["?", ""];
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"]]) {
    if (value >= size) return [(value / size).toFixed(value >= 100 * size ? 0 : 1), unit];
  }
  return [number(value), ""];
}

export function bytes(value) {
  if (!KNOWN(value)) return ["?", ""];
  let unit = "B";
  for (const larger of ["kB", "MB", "GB", "TB"]) {
    if (value < 1000) break;
    value /= 1000;
    unit = larger;
  }
  return [value.toFixed(unit === "B" || value >= 100 ? 0 : 1), unit];
}

export function seconds(value) {
  if (!KNOWN(value)) return ["?", ""];
  if (value < 10) return [Number.isInteger(value) ? String(value) : value.toFixed(2), "s"];
  if (value < 120) return [value.toFixed(0), "s"];
  if (value < 7200) return [(value / 60).toFixed(0), "min"];
  return value < 172800 ? [(value / 3600).toFixed(1), "h"] : [(value / 86400).toFixed(value < 864000 ? 1 : 0), "d"];
}

export const ago = (value) => (value < 2 ? "just now" : `${joined(seconds(value < 10 ? Math.round(value) : value))} ago`);
export const joined = ([text, unit]) => (unit ? `${text} ${unit}` : text);
export const rate = ([text, unit]) => [text, unit && `${unit}/s`];
export const counted = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// The age of a time, by the clock of the server that told it.
export const age = (ms, nowMs) => (ms ? Math.max(0, (nowMs - ms) / 1000) : null);

function clock(stamp) {
  const told = new Date(stamp);
  return Number.isNaN(told.getTime()) ? "" : told.toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

const STAMP = /\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z/g;
const LONG_AGO_MS = 86400000;

// A time as people read it, with its age: of today without the day.
export function timeTold(stamp, nowMs) {
  const known = clock(stamp), old = nowMs - new Date(stamp);
  return known && `${old < LONG_AGO_MS ? known.slice(11) : known} (${ago(Math.max(0, old / 1000))})`;
}

// The times in what services say.
export const timesTold = (text, nowMs) => text.replace(STAMP, (stamp) => timeTold(stamp, nowMs));
