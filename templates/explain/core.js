"use strict";
// What all parts of the page stand on: the report, what is selected, and how elements are made.

const report = JSON.parse(document.getElementById("report").textContent);
const state = { tab: "overview", entry: 0, target: "", kernel: null, node: null, file: null, line: null };

/** An element; attributes by name, `on...` are listeners; children are elements or texts, never HTML. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
}

// -- numbers as people read them --

function bytes(n) {
  if (n === null || n === undefined) return "";
  if (n >= 1e9) return `${(n / 1e9).toFixed(2)} GB`;
  if (n >= 1e5) return `${(n / 1e6).toFixed(n >= 1e7 ? 1 : 2)} MB`;
  return n >= 1000 ? `${(n / 1e3).toFixed(1)} kB` : `${n} B`;
}

function count(n) {
  if (n === null || n === undefined) return "";
  for (const [size, unit] of [
    [1e12, "T"],
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ])
    if (n >= size) return `${+(n / size).toPrecision(3)} ${unit}`;
  return `${n}`;
}

function micros(us) {
  if (us === null || us === undefined) return "";
  return us >= 1000 ? `${(us / 1000).toPrecision(3)} ms` : `${us.toPrecision(3)} µs`;
}

const percent = (share) => (share === null || share === undefined ? "" : `${(100 * share).toFixed(1)} %`);
const short = (op) => op.replace(/^aten\.(\w+)(\.\w+)?$/, "$1");
const plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

// -- what is shown --

const entry = () => report.entry_points[state.entry];
const target = () => entry().targets[state.target];
const kernels = () => target().kernels;
const measured = () => kernels().some((k) => k.us !== undefined);

const KINDS = {
  gemm: "gemm",
  conv: "conv",
  convchain: "conv",
  attention: "attention",
  nest: "rows",
  reduce: "rows",
  scan: "rows",
  map: "pointwise",
  scatter: "order",
  routine: "order",
  custom: "other",
  assert: "other",
};
const KIND_NAMES = {
  gemm: "matrix product",
  conv: "convolution",
  attention: "attention",
  rows: "rows and reductions",
  pointwise: "elementwise",
  order: "sorts, scatters, routines",
  other: "other",
};
const kindOf = (kernel) => KINDS[kernel.kind] || "other";

function legend(list) {
  const kinds = [...new Set(list.map(kindOf))];
  return el(
    "div",
    { class: "legend" },
    kinds.map((k) => el("span", { class: `k-${k}` }, el("i", { class: "dot" }), KIND_NAMES[k])),
  );
}

/** Graph nodes by name, and which kernel each became part of. */
function graphIndex() {
  const graph = entry().graph;
  const nodes = new Map((graph ? graph.nodes : []).map((n) => [n.name, { ...n, kernels: [] }]));
  for (const kernel of kernels()) for (const name of kernel.nodes) nodes.get(name)?.kernels.push(kernel.index);
  return nodes;
}

/** "file:line" of a node's most telling place. */
function placesOf(node) {
  return (node.places || []).map(([file, line]) => ({
    file,
    line,
    text: `${report.sources[file].name.split("/").pop()}:${line}`,
  }));
}

/** File number -> line -> kernels that come from it. */
function linesIndex() {
  const found = new Map();
  for (const node of graphIndex().values()) {
    for (const { file, line } of placesOf(node)) {
      if (!found.has(file)) found.set(file, new Map());
      const lines = found.get(file);
      if (!lines.has(line)) lines.set(line, { kernels: new Set(), nodes: [] });
      lines.get(line).nodes.push(node.name);
      for (const k of node.kernels) lines.get(line).kernels.add(k);
    }
  }
  return found;
}

/** The places that a kernel's operators come from, the user's own first. */
function kernelPlaces(kernel) {
  const nodes = graphIndex();
  const found = new Map();
  for (const name of kernel.nodes)
    for (const place of placesOf(nodes.get(name) || {})) found.set(`${place.file}:${place.line}`, place);
  return [...found.values()].sort(
    (a, b) => report.sources[b.file].user - report.sources[a.file].user || a.file - b.file || a.line - b.line,
  );
}

// -- coloured code, a row for each line --

/** HTML of each line; spans that highlight.js leaves open over a line's end are closed and opened again. */
function colouredLines(text, language) {
  const html = hljs.highlight(text, { language, ignoreIllegals: true }).value;
  const open = [];
  return html.split("\n").map((line) => {
    const start = open.join("");
    for (const tag of line.match(/<span[^>]*>|<\/span>/g) || []) tag === "</span>" ? open.pop() : open.push(tag);
    return start + line + "</span>".repeat(open.length);
  });
}

/** A box of code that scrolls, by keys too. */
const codeBox = (label) => el("div", { class: "code", role: "region", tabindex: 0, "aria-label": label });

function codeRow(number, html, attributes = {}, heat = null) {
  const text = el("span", { class: "text" });
  text.innerHTML = html || " "; // made by highlight.js, which escapes the text
  return el(
    "div",
    { class: "row", ...attributes },
    el("span", { class: "no" }, `${number}`),
    heat === null ? null : el("span", { class: "heat" }, heat),
    text,
  );
}
