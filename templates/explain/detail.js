// The panel of what is selected: a kernel with its operators, lines, source, plan; an operator of the graph.

function detailOf() {
  const parts = [];
  if (state.node !== null) parts.push(...nodeDetail(graphIndex().get(state.node)));
  if (state.kernel !== null && kernels()[state.kernel]) parts.push(...kernelDetail(kernels()[state.kernel]));
  return parts;
}

const closeButton = () =>
  el("button", { type: "button", "aria-label": "Close", onclick: () => select({ kernel: null, node: null }) }, "✕");
const facts = (rows) =>
  el(
    "dl",
    {},
    rows
      .filter(([, v]) => v !== "" && v !== null && v !== undefined)
      .flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]),
  );

function nodeDetail(node) {
  if (!node) return [];
  const link = (name) =>
    el(
      "button",
      {
        type: "button",
        class: "link mono",
        style: "margin-right:10px",
        onclick: () => select({ node: name, kernel: graphIndex().get(name)?.kernels[0] ?? null, tab: "graph" }),
      },
      name,
    );
  const readers = [...graphIndex().values()].filter((n) => n.inputs.includes(node.name));
  const weight = (name) => graphIndex().get(name)?.op === "weight";
  return [
    el("div", { class: "head" }, el("h2", {}, `${short(node.op)}  ${node.name}`), closeButton()),
    facts([
      ["type", el("code", {}, node.type)],
      [
        "module",
        node.module ? el("span", {}, el("code", {}, node.module), ` ${entry().graph.modules[node.module] || ""}`) : "",
      ],
      ["reads", el("span", {}, node.inputs.filter((n) => !weight(n)).map(link))],
      [
        "weights",
        node.inputs
          .filter(weight)
          .map((n) => `${n} ${graphIndex().get(n).type}`)
          .join(", "),
      ],
      [
        "read by",
        el(
          "span",
          {},
          readers.map((n) => link(n.name)),
        ),
      ],
      [
        "kernels",
        node.kernels.length
          ? node.kernels.map((k) => `#${k}`).join(", ")
          : "none of its own: it is a view, or was fused into the kernels of its readers",
      ],
    ]),
    snippet(placesOf(node)),
  ];
}

function kernelDetail(k) {
  const parts = [
    el(
      "div",
      { class: "head", id: "kernel-detail" },
      el("h2", {}, el("i", { class: `dot k-${kindOf(k)}` }), `#${k.index} ${k.name}`),
      closeButton(),
    ),
  ];
  const launch = k.launch
    ? [
        ["grid", k.launch.grid.join(" × ")],
        ["threads", k.launch.threads],
        ["registers", `${k.launch.registers}${k.launch.spills ? `, ${k.launch.spills} spilled` : ""}`],
        ["shared memory", bytes(k.launch.shared)],
      ]
    : [];
  parts.push(
    facts([
      ["time", k.us === undefined ? "" : `${micros(k.us)}, ${percent(k.share)} of all kernels`],
      [
        "speed",
        k.gflops
          ? `${k.gflops.toPrecision(3)} GFLOP/s, ${k.gbytes ? `${k.gbytes.toPrecision(3)} GB/s` : ""}${k.percent ? `; ${k.percent.toFixed(0)} % of the roof, bound by ${k.bound}` : ""}`
          : "",
      ],
      [
        "operations",
        k.flops ? `${count(k.flops)}${k.formulas.flops !== `${k.flops}` ? ` = ${k.formulas.flops}` : ""}` : "",
      ],
      ["bytes", k.bytes ? `${bytes(k.bytes)}, of which weights ${bytes(k.weights)}, written ${bytes(k.writes)}` : ""],
      ...launch,
    ]),
  );
  parts.push(
    el("h3", {}, "Operators"),
    el(
      "div",
      {},
      k.nodes.length
        ? k.nodes.map((n) =>
            el(
              "button",
              { type: "button", class: "chip", onclick: () => select({ tab: "graph", node: n, kernel: k.index }) },
              n,
            ),
          )
        : k.ops.map((o) => el("span", { class: "chip" }, short(o))),
    ),
  );
  parts.push(
    el("h3", {}, "Lines of the model"),
    el("div", { style: "margin-bottom:6px" }, placeLinks(k)),
    snippet(kernelPlaces(k).slice(0, 3)),
  );
  const related = entry().fusions.filter((f) => {
    const made = writers();
    return made.get(bufferOf(f.producer)) === k.index || made.get(bufferOf(f.consumer)) === k.index;
  });
  if (related.length)
    parts.push(
      el("h3", {}, "Fusions"),
      el(
        "div",
        {},
        related
          .slice(0, 12)
          .map((f) =>
            el(
              "div",
              {},
              el("span", { class: f.done ? "good" : "bad" }, f.done ? "fused  " : "not fused  "),
              el("code", {}, f.producer),
              " → ",
              el("code", {}, f.consumer),
              el("span", { class: "soft" }, `: ${f.reason}`),
            ),
          ),
      ),
    );
  if (Object.keys(k.plan).length)
    parts.push(el("h3", {}, "Plan"), el("pre", {}, planText(k.plan).split(", ").join("\n")));
  if (k.loops) parts.push(el("h3", {}, "Loops"), el("pre", {}, k.loops));
  parts.push(
    el("h3", {}, "Memory"),
    el(
      "div",
      {},
      k.buffers.map((b) => el("span", { class: "chip mono" }, b.replace("const:", "weight ").replace(":", " "))),
    ),
  );
  parts.push(el("h3", {}, "Generated source"), generated(k));
  return parts;
}

/** A few lines of the user's file around each place. */
function snippet(places) {
  const box = codeBox("Lines of the model");
  let last = null;
  for (const place of places) {
    const part = report.sources[place.file].parts.find(
      ([first, text]) => place.line >= first && place.line < first + text.split("\n").length,
    );
    if (!part || (last && last.file === place.file && Math.abs(last.line - place.line) < 3)) continue;
    last = place;
    const rows = colouredLines(part[1].replace(/\n$/, ""), "python"),
      at = place.line - part[0];
    box.append(el("div", { class: "cut" }, place.text));
    for (let i = Math.max(0, at - 2); i < Math.min(rows.length, at + 3); i++)
      box.append(codeRow(part[0] + i, rows[i], i === at ? { class: "row here" } : {}));
  }
  return box.childElementCount ? box : el("span");
}
