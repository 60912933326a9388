// What lies in the package, and two packages side by side.

/** Names in the package of a constant of the loops: those say w_ before and a number behind a second layout. */
const weightNames = (name) => new Set([name, name.replace(/^w_/, ""), name.replace(/^w_/, "").replace(/\d+$/, "")]);

function weightsView() {
  const list = report.weights,
    all = list.reduce((n, w) => n + w.bytes, 0),
    most = list.length ? list[0].bytes : 1;
  const users = new Map();
  for (const k of kernels())
    for (const b of k.buffers)
      if (b.startsWith("const:"))
        for (const name of weightNames(b.slice(6))) users.set(name, [...(users.get(name) || []), k.index]);
  const rows = list.slice(0, 600).map((w) => {
    const own = users.get(w.name) || [];
    return el(
      "tr",
      {},
      el("td", { class: "name" }, w.name),
      el("td", {}, w.dtype),
      el("td", { class: "mono" }, `[${w.shape.join(", ")}]`),
      el("td", { class: "num" }, bytes(w.bytes)),
      el("td", { style: "width:170px" }, el("i", { class: "bar", style: `width:${(160 * w.bytes) / most}px` })),
      el(
        "td",
        {},
        own
          .slice(0, 6)
          .map((k) =>
            el(
              "button",
              {
                type: "button",
                class: "link",
                style: "margin-right:8px",
                onclick: () => select({ kernel: k, node: null }),
              },
              `#${k}`,
            ),
          ),
      ),
    );
  });
  return [
    el(
      "div",
      { class: "cards" },
      card("weights", bytes(all), plural(list.length, "tensor")),
      card("everything else", bytes(report.package.other), "code, loader, sources, certificate"),
    ),
    el(
      "div",
      { class: "panel" },
      el("h2", {}, "Tensors, the largest first"),
      table(["name", "dtype", "shape", "size:num", "of the largest", "kernels"], rows),
      list.length > 600 ? el("p", { class: "note" }, `and ${list.length - 600} smaller ones`) : null,
    ),
  ];
}

/** What --quantize made of each layer, and what that costs. */
function quantizationView() {
  const rows = report.package.quantization.entry_points.flatMap((e) => e.layers.map((layer) => ({ ...layer, entry: e })));
  const heard = rows.map((r) => r.snr).filter((snr) => snr !== null && snr !== undefined);
  const best = Math.max(...heard, 1);
  const cards = report.package.quantization.entry_points.map((e) =>
    card(e.entry, e.format, e.error === null || e.error === undefined ? "" : `error ${e.error.toExponential(1)} against floats`),
  );
  const lines = [...rows]
    .sort((a, b) => (a.snr ?? Infinity) - (b.snr ?? Infinity))
    .map((r) =>
      el(
        "tr",
        {},
        el("td", { class: "name" }, r.name),
        el("td", { class: "num" }, bytes(r.float_bytes)),
        el("td", { class: "num" }, bytes(r.bytes)),
        el("td", { class: "num" }, r.snr === null || r.snr === undefined ? "" : `${r.snr.toFixed(1)} dB`),
        el("td", { style: "width:170px" }, el("i", { class: "bar", style: `width:${(160 * Math.max(r.snr ?? 0, 0)) / best}px` })),
      ),
    );
  return [
    el("div", { class: "cards" }, cards),
    el(
      "div",
      { class: "panel" },
      el("h2", {}, "Layers, the noisiest first"),
      table(["layer", "floats:num", "stored:num", "signal to noise:num", "of the best"], lines),
    ),
  ];
}

function packageView() {
  const rows = Object.entries(report.members)
    .sort((a, b) => b[1] - a[1])
    .map(([name, size]) => el("tr", {}, el("td", { class: "name" }, name), el("td", { class: "num" }, bytes(size))));
  const p = report.package;
  return [
    el(
      "div",
      { class: "grid" },
      el("div", { class: "panel" }, el("h2", {}, "Members"), table(["name", "size:num"], rows)),
      el(
        "div",
        {},
        el("div", { class: "panel" }, el("h2", {}, "Targets"), el("pre", {}, JSON.stringify(p.targets, null, 1))),
        el(
          "div",
          { class: "panel" },
          el("h2", {}, "Certificate"),
          el("pre", {}, JSON.stringify(p.certificate, null, 1)),
        ),
        el(
          "div",
          { class: "panel" },
          el("h2", {}, "Options and versions"),
          el("pre", {}, JSON.stringify({ options: p.options, versions: p.versions, tuning: p.tuning }, null, 1)),
        ),
      ),
    ),
  ];
}

function compareView() {
  const d = report.against,
    own = d.entry_points.find((e) => e.name === entry().name);
  const change = (a, b, shown) => [
    el("td", { class: "num" }, a === null || a === undefined ? "" : shown(a)),
    el("td", { class: "num" }, b === null || b === undefined ? "" : shown(b)),
    el("td", { class: "num" }, a && b ? `${(a / b).toFixed(2)} ×` : ""),
  ];
  const facts = table(
    ["fact", "this:num", "the other:num", "this / other:num"],
    d.facts.map((f) =>
      el(
        "tr",
        {},
        el("td", {}, f.name),
        change(
          f.this,
          f.other,
          f.unit === "bytes"
            ? bytes
            : f.unit === "us"
              ? micros
              : (n) => (f.unit === "error" ? n.toExponential(1) : `${n}`),
        ),
      ),
    ),
  );
  if (!own)
    return [
      el("div", { class: "panel" }, el("h2", {}, `Beside ${d.name}`), facts),
      el("p", { class: "note" }, "The other package has no such entry point and target."),
    ];
  const kernelsTable = table(
    ["operators", "kernels:num", "the other:num", "change", "time:num", "the other:num", "ratio:num"],
    own.kernels.map((k) =>
      el(
        "tr",
        {},
        el("td", {}, k.ops.map(short).join(" + ")),
        el("td", { class: "num" }, `${k.this}`),
        el("td", { class: "num" }, `${k.other}`),
        el("td", { class: k.this === k.other ? "soft" : "warn" }, k.this === k.other ? "same" : "differs"),
        change(k.us, k.other_us, micros),
      ),
    ),
  );
  const fusions = (list, title) =>
    el(
      "div",
      { class: "panel" },
      el("h2", {}, title),
      list.length
        ? table(
            ["producer", "consumer", "decision", "reason"],
            list.map((f) =>
              el(
                "tr",
                {},
                el("td", { class: "name" }, f.producer),
                el("td", { class: "name" }, f.consumer),
                el("td", { class: f.done ? "good" : "bad" }, f.done ? "fused" : "not fused"),
                el("td", {}, f.reason),
              ),
            ),
          )
        : el("p", { class: "note" }, "none"),
    );
  return [
    el("div", { class: "panel" }, el("h2", {}, `Beside ${d.name}`), facts),
    el("div", { class: "panel" }, el("h2", {}, "Kernels by operators"), kernelsTable),
    el(
      "div",
      { class: "grid" },
      fusions(own.fusions_only_this, "Decisions of this package alone"),
      fusions(own.fusions_only_other, "Decisions of the other alone"),
    ),
  ];
}
