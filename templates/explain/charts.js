// Charts in plain SVG: memory over time, roofline, timeline. A mark selects its kernel.

/** A mark of a chart: an SVG shape that says what it is, and selects a kernel by mouse and keys. */
function mark(shape, kernel, say, place, here = state.kernel === kernel.index) {
  return svg(
    shape,
    {
      class: `mark-rect k-${kindOf(kernel)}${here ? " here" : ""}`,
      tabindex: 0,
      role: "button",
      "aria-label": say,
      ...place,
      ...pressed(() => select({ kernel: kernel.index ?? null, node: null })),
    },
    svg("title", {}, say),
  );
}

/** The picture of a chart, which is `label` to those who do not see it. */
const chart = (width, height, label) =>
  svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label });

function ticks(most, wanted = 5) {
  const raw = (most || 1) / wanted,
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let v = 0; v <= most * 1.0001; v += step) found.push(v);
  return found;
}

function memoryView() {
  const memory = target().memory,
    list = memory.buffers;
  const say = memory.dynamic
    ? `Sizes are dynamic: buffers are placed at each call; here for ${sizesText()}.`
    : "Sizes are fixed: places are decided when the package is built.";
  const cards = el(
    "div",
    { class: "cards" },
    card("arena", bytes(memory.arena), "memory of a call's temporaries"),
    card(
      "alive at once",
      bytes(memory.live),
      memory.live ? `arena / alive ${(memory.arena / memory.live).toFixed(2)}` : "",
    ),
    card("sum of all buffers", bytes(list.reduce((n, b) => n + b.bytes, 0)), plural(list.length, "buffer")),
  );
  if (!list.length)
    return [
      cards,
      el(
        "p",
        { class: "note" },
        entry().graph
          ? "No result has to wait in memory: every value goes from kernel to kernel through arguments and outputs."
          : "The package keeps no sources, and with them no lifetimes.",
      ),
    ];
  const width = Math.max(1080, kernels().length * 13 + 110),
    height = 400,
    left = 80,
    top = 12;
  const x = (k) => left + ((width - left - 16) * k) / kernels().length,
    y = (b) => top + ((height - top - 34) * b) / (memory.arena || 1);
  const picture = chart(width, height, "Memory over time: a rectangle for each buffer");
  for (const t of ticks(memory.arena))
    picture.append(
      svg("line", { class: "axis", x1: left, x2: width - 16, y1: y(t), y2: y(t) }),
      svg("text", { class: "soft", x: left - 8, y: y(t) + 4, "text-anchor": "end" }, bytes(Math.round(t))),
    );
  const step = Math.ceil(kernels().length / 30);
  for (let k = 0; k < kernels().length; k += step)
    picture.append(
      svg("text", { class: "soft", x: (x(k) + x(k + 1)) / 2, y: height - 14, "text-anchor": "middle" }, `${k}`),
    );
  picture.append(svg("text", { class: "soft", x: left, y: height - 1 }, "kernel, in order of execution"));
  for (const b of list) {
    const w = x(b.last + 1) - x(b.first),
      h = Math.max(1.5, y(b.offset + b.bytes) - y(b.offset));
    const over = b.over.length ? `\nin the same memory afterwards: ${b.over.join(", ")}` : "";
    const say = `${b.name}: ${bytes(b.bytes)} at ${bytes(b.offset)}, kernels ${b.first} to ${b.last}${over}`;
    const here = state.kernel !== null && state.kernel >= b.first && state.kernel <= b.last;
    const place = { x: x(b.first), y: y(b.offset), width: w, height: h, rx: 2 };
    picture.append(mark("rect", kernels()[b.first] || {}, say, place, here));
    if (h > 15 && w > b.name.length * 6.6 + 10)
      picture.append(
        svg(
          "text",
          { x: x(b.first) + 6, y: y(b.offset) + 14, style: "fill:var(--card);font-size:11px;pointer-events:none" },
          b.name,
        ),
      );
  }
  const rows = [...list]
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, 40)
    .map((b) =>
      el(
        "tr",
        { class: "pick", onclick: () => select({ kernel: b.first, node: null }) },
        el("td", { class: "name" }, b.name),
        el("td", { class: "num" }, bytes(b.bytes)),
        el("td", {}, b.dtype),
        el("td", { class: "num" }, `${b.first}–${b.last}`),
        el("td", { class: "name soft" }, b.over.join(", ")),
      ),
    );
  return [
    el(
      "p",
      { class: "note" },
      `${say} Height is memory, width is time in kernels; what lies above another later takes over its place.`,
    ),
    cards,
    el("div", { class: "panel" }, picture, legend(kernels())),
    el(
      "div",
      { class: "panel" },
      el("h2", {}, "Largest buffers"),
      table(["name", "size:num", "dtype", "kernels:num", "taken over by"], rows),
    ),
  ];
}

const sizesText = () =>
  Object.entries(entry().sizes)
    .map(([n, v]) => `${n} = ${v}`)
    .join(", ") || "fixed sizes";
const card = (label, value, small = "") =>
  el(
    "div",
    { class: "card" },
    el("div", { class: "label" }, label),
    el("div", { class: "value" }, value),
    small ? el("small", {}, small) : null,
  );
const table = (heads, rows) =>
  el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        heads.map((h) => el("th", h.endsWith(":num") ? { class: "num" } : {}, h.replace(":num", ""))),
      ),
    ),
    el("tbody", {}, rows),
  );

const notMeasured = () => [
  el(
    "p",
    { class: "note" },
    "Nothing was measured for this entry point and target. Run ",
    el("code", {}, `mycc explain ${report.package.name}.pkg --measure --out report.html`),
    " on a machine of the target's kind.",
  ),
];

/** Operations per byte against operations per second, both logarithmic. */
function rooflineView() {
  const roof = report.measured && report.measured.roof;
  if (!measured() || !roof) return notMeasured();
  const gflops = roof.gflops || roof.tflops * 1000,
    lines = roof.read
      ? roof.read.map(([size, rate]) => [rate, `${bytes(size)} of data: ${rate.toFixed(0)} GB/s`])
      : [[(roof.tbytes || 1) * 1000, `memory, ${(roof.tbytes || 0).toFixed(2)} TB/s`]];
  const points = kernels()
    .filter((k) => k.gflops && k.flops && k.bytes)
    .map((k) => ({ k, x: k.flops / k.bytes, y: k.gflops }));
  if (!points.length) return notMeasured();
  const width = 860,
    height = 460,
    left = 66,
    bottom = 46,
    lo = (v) => Math.floor(Math.log10(v)),
    hi = (v) => Math.ceil(Math.log10(v));
  const x0 = lo(Math.min(...points.map((p) => p.x), 0.1)),
    x1 = hi(Math.max(...points.map((p) => p.x), (gflops / Math.min(...lines.map((l) => l[0]))) * 2));
  const y0 = lo(Math.min(...points.map((p) => p.y), gflops / 100)),
    y1 = hi(gflops * 1.2);
  const x = (v) => left + ((width - left - 20) * (Math.log10(v) - x0)) / (x1 - x0),
    y = (v) => height - bottom - ((height - bottom - 14) * (Math.log10(v) - y0)) / (y1 - y0);
  const picture = chart(width, height, "Roofline: speed of each kernel beside what the machine allows");
  for (let p = x0; p <= x1; p++)
    picture.append(
      svg("line", { class: "axis", x1: x(10 ** p), x2: x(10 ** p), y1: 14, y2: height - bottom }),
      svg(
        "text",
        { class: "soft", x: x(10 ** p), y: height - bottom + 18, "text-anchor": "middle" },
        `${10 ** p}`.slice(0, 6),
      ),
    );
  for (let p = y0; p <= y1; p++)
    picture.append(
      svg("line", { class: "axis", x1: left, x2: width - 20, y1: y(10 ** p), y2: y(10 ** p) }),
      svg("text", { class: "soft", x: left - 8, y: y(10 ** p) + 4, "text-anchor": "end" }, `${count(10 ** p)}`),
    );
  picture.append(
    svg("text", { class: "soft", x: width - 20, y: height - 8, "text-anchor": "end" }, "operations per byte"),
    svg("text", { class: "soft", x: left + 6, y: 26 }, "GFLOP/s"),
  );
  for (const [rate, name] of lines) {
    const knee = gflops / rate,
      start = 10 ** x0;
    picture.append(
      svg("path", {
        class: "roof",
        d: `M${x(start)},${y(Math.max(start * rate, 10 ** y0))}L${x(knee)},${y(gflops)}L${x(10 ** x1)},${y(gflops)}`,
      }),
    );
    const first = Math.max(start, 10 ** y0 / rate),
      at = Math.sqrt(first * knee);
    const slope = (Math.atan2(y(at * rate) - y(first * rate), x(at) - x(first)) * 180) / Math.PI;
    if (x(knee) - x(first) > 7 * name.length)
      picture.append(
        svg(
          "text",
          {
            class: "soft",
            x: x(at),
            y: y(at * rate) - 5,
            "text-anchor": "middle",
            transform: `rotate(${slope} ${x(at)} ${y(at * rate)})`,
          },
          name,
        ),
      );
  }
  picture.append(
    svg(
      "text",
      { class: "soft", x: width - 24, y: y(gflops) - 6, "text-anchor": "end" },
      `${gflops.toFixed(0)} GFLOP/s of multiply-adds`,
    ),
  );
  const most = Math.max(...points.map((p) => p.k.share));
  for (const p of points.sort((a, b) => b.k.share - a.k.share)) {
    const say = `#${p.k.index} ${p.k.name}: ${p.y.toPrecision(3)} GFLOP/s at ${p.x.toPrecision(3)} operations per byte, ${micros(p.k.us)}, ${percent(p.k.share)} of the time${p.k.percent ? `, ${p.k.percent.toFixed(0)} % of the roof` : ""}`;
    const r = 4 + 13 * Math.sqrt(p.k.share / most);
    picture.append(mark("circle", p.k, say, { cx: x(p.x), cy: y(p.y), r, "fill-opacity": 0.8 }));
  }
  const rows = kernels()
    .filter((k) => k.percent)
    .sort((a, b) => b.us - a.us)
    .slice(0, 30)
    .map((k) => kernelRow(k, [micros(k.us), percent(k.share), `${k.percent.toFixed(0)} %`, k.bound]));
  return [
    el(
      "p",
      { class: "note" },
      "How far each kernel is from what the machine allows. A kernel under a slanted line waits for memory, under the flat one for arithmetic; the area of a circle is its share of the time. Operations of kernels that are no products are estimates.",
    ),
    el("div", { class: "panel" }, picture, legend(kernels())),
    el(
      "div",
      { class: "panel" },
      el("h2", {}, "Kernels beside the roof"),
      table(["kernel", "time:num", "share:num", "of roof:num", "bound by"], rows),
    ),
  ];
}

function kernelRow(k, cells) {
  return el(
    "tr",
    { class: `pick${state.kernel === k.index ? " here" : ""}`, onclick: () => select({ kernel: k.index, node: null }) },
    el(
      "td",
      { class: "first" },
      el("i", { class: `dot k-${kindOf(k)}` }),
      el("button", { class: "link mono", type: "button" }, `#${k.index} ${k.name}`),
    ),
    cells.map((c, i) => el("td", { class: /^[\d.]+ ?(%|µs|ms|[kMGT]?)$/.test(`${c}`) ? "num" : "" }, c)),
  );
}

/** Kernels one after the other, as long as their medians. */
function timelineView() {
  if (!measured()) return notMeasured();
  const m = report.measured,
    all = kernels().reduce((t, k) => t + k.us, 0),
    width = 1100,
    lane = 30,
    label = 150;
  const kinds = [...new Set(kernels().map(kindOf))],
    height = kinds.length * lane + 44;
  const x = (us) => label + ((width - label - 16) * us) / all;
  const picture = chart(width, height, "Timeline of a run");
  for (const t of ticks(all, 8))
    picture.append(
      svg("line", { class: "axis", x1: x(t), x2: x(t), y1: 4, y2: height - 32 }),
      svg("text", { class: "soft", x: x(t), y: height - 16, "text-anchor": "middle" }, micros(t) || "0"),
    );
  kinds.forEach((k, i) =>
    picture.append(
      svg("text", { class: "soft", x: label - 10, y: i * lane + 23, "text-anchor": "end" }, KIND_NAMES[k]),
    ),
  );
  let start = 0;
  for (const k of kernels()) {
    const say = `#${k.index} ${k.name}: ${micros(k.us)}, ${percent(k.share)}`;
    const row = kinds.indexOf(kindOf(k)) * lane + 7;
    const length = Math.max(1, x(start + k.us) - x(start));
    picture.append(mark("rect", k, say, { x: x(start), y: row, width: length, height: lane - 8, rx: 2 }));
    start += k.us;
  }
  const cards = el(
    "div",
    { class: "cards" },
    card(
      "a run",
      micros(1000 * m.median_ms),
      `best ${micros(1000 * m.min_ms)}, 90 % ${micros(1000 * m.p90_ms)}, ${plural(m.runs, "run")}`,
    ),
    card("kernels", micros(all), `${plural(kernels().length, "kernel")}, medians added up`),
    card("load", `${m.load_ms.toFixed(1)} ms`, `first run ${m.first_run_ms.toFixed(2)} ms`),
    card("where", m.device, `${plural(m.threads, "thread")}; ${sizesText()}`),
  );
  const rows = [...kernels()]
    .sort((a, b) => b.us - a.us)
    .map((k) =>
      kernelRow(k, [
        micros(k.us),
        percent(k.share),
        k.ops.map(short).join(", "),
        kernelPlaces(k)
          .slice(0, 3)
          .map((p) => p.text)
          .join(", ") || k.sources.join(", "),
      ]),
    );
  return [
    cards,
    el("div", { class: "panel" }, picture),
    el(
      "div",
      { class: "panel" },
      el("h2", {}, "The slowest first"),
      table(["kernel", "time:num", "share:num", "operators", "lines"], rows),
    ),
  ];
}
