// The views that are tables and text.

function overviewView() {
  const p = report.package,
    e = entry(),
    m = report.measured,
    errors = (p.certificate && p.certificate.error) || [],
    eager = (p.certificate && p.certificate.eager) || [];
  const cards = el(
    "div",
    { class: "cards" },
    m && measured() ? card("a run", micros(1000 * m.median_ms), `${m.device}, ${plural(m.threads, "thread")}`) : null,
    card("kernels", `${kernels().length}`, `${new Set(kernels().map((k) => k.name)).size} distinct`),
    card("fusions", `${e.fusions.filter((f) => f.done).length}`, `${e.fusions.filter((f) => !f.done).length} refused`),
    card(
      "error",
      errors.length ? Math.max(...errors).toExponential(1) : "—",
      errors.length
        ? eager.length
          ? `eager's ${Math.max(...eager).toExponential(1)}, against float64`
          : "against float64"
        : "not verified",
    ),
    card("package", bytes(p.size), `weights ${bytes(p.weights.size)}`),
    card("arena", bytes(target().memory.arena), sizesText()),
  );
  const byTime = measured(),
    amount = (k) => (byTime ? k.us : k.flops || 0),
    list = [...kernels()].sort((a, b) => amount(b) - amount(a)).slice(0, 12),
    most = amount(list[0] || {}) || 1;
  const heavy = el(
    "div",
    { class: "panel" },
    el("h2", {}, byTime ? "Where the time goes" : "Where the operations are"),
    table(
      ["kernel", byTime ? "time:num" : "operations:num", "of the most", "lines"],
      list.map((k) =>
        el(
          "tr",
          { class: "pick", onclick: () => select({ kernel: k.index, node: null }) },
          el(
            "td",
            { class: "first" },
            el("i", { class: `dot k-${kindOf(k)}` }),
            el(
              "button",
              { class: "link", type: "button", "data-kernel": k.index },
              `#${k.index} ${k.ops.map(short).join(" + ")}`,
            ),
          ),
          el("td", { class: "num" }, byTime ? micros(k.us) : count(k.flops)),
          el(
            "td",
            { style: "width:130px" },
            el("i", { class: `bar k-${kindOf(k)}`, style: `width:${(120 * amount(k)) / most}px` }),
          ),
          el("td", {}, placeLinks(k).slice(0, 2)),
        ),
      ),
    ),
    legend(kernels()),
  );
  const facts = [
    ["targets", p.targets.map((t) => t.target + (t.chip ? ` (${t.chip})` : "")).join(", ")],
    [
      "options",
      Object.entries(p.options || {})
        .map(([k, v]) => `${k} = ${JSON.stringify(v)}`)
        .join(", ") || "defaults",
    ],
    [
      "compiled by",
      Object.entries(p.versions)
        .map(([n, v]) => (n === "compiler" ? v : `${n} ${v}`))
        .join(", "),
    ],
    ["glibc", [...new Set(p.targets.map((t) => t.glibc).filter(Boolean))].join(", ")],
    ["python", p.python.join(", ") || "through ctypes"],
    ["sizes", e.symbols.map((s) => `${s.name} ${s.min}..${s.max ?? ""}`).join(", ") || "fixed"],
    ["state", p.state.map((s) => s.name).join(", ")],
    ["tuned", p.tuning ? `on ${p.tuning.machine.cpu || "a GPU"}` : ""],
  ];
  const checked =
    p.certificate && p.certificate.shapes
      ? p.certificate.shapes
          .map(
            (s) =>
              Object.entries(s)
                .map(([k, v]) => `${k} ${v}`)
                .join(", ") || "fixed sizes",
          )
          .filter((t, i, all) => all.indexOf(t) === i)
          .join("; ")
      : "";
  return [
    cards,
    el("div", { class: "panel" }, el("div", { class: "signature" }, e.signature)),
    el(
      "div",
      { class: "grid" },
      heavy,
      el(
        "div",
        { class: "panel" },
        el("h2", {}, "The package"),
        el(
          "dl",
          {},
          [...facts, ["verified at", checked]]
            .filter(([, v]) => v)
            .flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]),
        ),
      ),
    ),
  ];
}

function placeLinks(kernel) {
  const places = kernelPlaces(kernel);
  if (!places.length) return kernel.sources.map((s) => el("span", { class: "chip mono" }, s));
  return places.map((p) =>
    el(
      "button",
      {
        class: "link mono",
        type: "button",
        style: "margin-right:10px",
        "data-line": p.text,
        onclick: (event) => {
          event.stopPropagation();
          select({ tab: "code", file: p.file, line: p.line, kernel: kernel.index, node: null });
        },
      },
      p.text,
    ),
  );
}

let kernelOrder = { key: "index", down: false };
function kernelsView() {
  const time = measured();
  const columns = [
    ["kernel", "name"],
    ...(time
      ? [
          ["time", "us"],
          ["share", "share"],
          ["of roof", "percent"],
        ]
      : []),
    ["operations", "flops"],
    ["bytes", "bytes"],
    ["operators", null],
    ["lines", null],
    ["plan", null],
  ];
  const list = [...kernels()].sort((a, b) => {
    const [x, y] = [a[kernelOrder.key], b[kernelOrder.key]];
    return (
      (typeof x === "string" ? x.localeCompare(y) : (x ?? -1) - (y ?? -1)) * (kernelOrder.down ? -1 : 1) ||
      a.index - b.index
    );
  });
  const head = columns.map(([title, key]) =>
    el(
      "th",
      {
        class: ["us", "share", "percent", "flops", "bytes"].includes(key) ? "num" : "",
        "aria-sort": kernelOrder.key === key ? (kernelOrder.down ? "descending" : "ascending") : null,
      },
      key
        ? el(
            "button",
            {
              type: "button",
              onclick: () => {
                kernelOrder = { key, down: kernelOrder.key === key ? !kernelOrder.down : key !== "name" };
                render();
              },
            },
            title + (kernelOrder.key === key ? (kernelOrder.down ? " ↓" : " ↑") : ""),
          )
        : title,
    ),
  );
  const rows = list.map((k) =>
    el(
      "tr",
      {
        class: `pick${state.kernel === k.index ? " here" : ""}`,
        onclick: () => select({ kernel: k.index, node: null }),
      },
      el(
        "td",
        { class: "first" },
        el("i", { class: `dot k-${kindOf(k)}` }),
        el("button", { class: "link mono", type: "button", "data-kernel": k.index }, `#${k.index} ${k.name}`),
      ),
      time
        ? [
            el("td", { class: "num" }, micros(k.us)),
            el("td", { class: "num" }, percent(k.share)),
            el("td", { class: "num" }, k.percent ? `${k.percent.toFixed(0)} %` : ""),
          ]
        : [],
      el("td", { class: "num" }, count(k.flops)),
      el("td", { class: "num" }, bytes(k.bytes)),
      el("td", {}, k.ops.map(short).join(", ")),
      el("td", {}, placeLinks(k)),
      el("td", { class: "soft" }, planText(k.plan, true)),
    ),
  );
  return [el("div", { class: "panel" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)))];
}

const planValue = (v) =>
  Array.isArray(v)
    ? v.map(planValue).filter(Boolean).join(" ")
    : v && typeof v === "object"
      ? `(${Object.entries(v)
          .map(([k, x]) => `${k} ${planValue(x)}`)
          .join(", ")})`
      : `${v}`;
const SHORT = ["form", "algorithm", "vector", "parallel", "tile", "block", "warps", "stages"];
const planText = (plan, brief) =>
  Object.entries(plan || {})
    .filter(([k]) => !brief || SHORT.includes(k))
    .map(([k, v]) => `${k.replaceAll("_", " ")} ${planValue(v)}`)
    .join(", ");
