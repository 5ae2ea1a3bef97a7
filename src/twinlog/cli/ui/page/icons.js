import { html } from "./vendor/preact-htm.js";

// Shapes differ, so that no colour is needed to tell them apart.
const PATHS = {
  good: html`<circle cx="8" cy="8" r="7"/><path class="mark" d="M4.6 8.3l2.3 2.3 4.5-5"/>`,
  warn: html`<path d="M8 1.2L15.3 14.4H.7z"/><path class="mark" d="M8 6v4M8 12.2v.1"/>`,
  bad: html`<path d="M5 .9h6L15.1 5v6L11 15.1H5L.9 11V5z"/><path class="mark" d="M5.4 5.4l5.2 5.2M10.6 5.4l-5.2 5.2"/>`,
  unknown: html`<circle cx="8" cy="8" r="7"/><path class="mark" d="M5.9 6.3c0-2.8 4.3-2.6 4.3-.2 0 1.6-2.1 1.7-2.1 3.3M8.1 11.9v.1"/>`,
  neutral: html`<circle cx="8" cy="8" r="7"/><path class="mark" d="M8 7.4v4M8 4.6v.1"/>`,
};
const LINES = {
  copy: html`<rect x="5.5" y="5.5" width="8" height="9" rx="1.5"/><path d="M10.5 5.5v-2A1.5 1.5 0 0 0 9 2H4a1.5 1.5 0 0 0-1.5 1.5v7A1.5 1.5 0 0 0 4 12h1.5"/>`,
  done: html`<path d="M2.5 8.5l3.5 3.5 7.5-8"/>`,
  search: html`<circle cx="7" cy="7" r="4.5"/><path d="M10.5 10.5L14 14"/>`,
  cross: html`<path d="M3.5 3.5l9 9M12.5 3.5l-9 9"/>`,
  logo: html`<path d="M2 4h6M2 8h6M2 12h6M8 4l3 4-3 4M14 3v10"/>`,
};

export const Icon = ({ name }) =>
  PATHS[name]
    ? html`<svg class=${"icon solid " + name} viewBox="0 0 16 16" aria-hidden="true">${PATHS[name]}</svg>`
    : html`<svg class=${"icon line " + name} viewBox="0 0 16 16" aria-hidden="true">${LINES[name]}</svg>`;
