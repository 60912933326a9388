// The model's graph, by the modules that the user wrote, and the graph of kernels with what was fused and what was not.

let openModules = null; // of the entry point that is shown

function graphView() {
  const graph = entry().graph;
  if (!graph)
    return [
      el(
        "p",
        { class: "note" },
        "This package keeps no sources (codegen.sources=no), and with them no graph. Explain the model itself: mycc explain model.py.",
      ),
    ];
  const root = moduleTree(graph);
  if (!openModules || openModules.entry !== state.entry) openModules = { entry: state.entry, open: openAtFirst(root) };
  if (state.node !== null) openAround(root, state.node);
  const drawn = layoutGraph(root, openModules.open);
  const nodes = graphIndex();
  const content = svg("g", {}, arrow());
  for (const box of drawn.boxes) if (!box.leaf && box.open) content.append(openGroup(box));
  for (const edge of drawn.edges) content.append(graphEdge(edge, nodes));
  for (const box of drawn.boxes) {
    if (box.leaf) content.append(leafBox(box, nodes));
    else if (!box.open) content.append(foldedGroup(box, nodes));
  }
  const view = canvas(content, drawn.width, drawn.height, "The model's graph");
  const chosen =
    drawn.boxes.find((b) => b.leaf && b.id === state.node) ||
    drawn.boxes.find((b) => b.leaf && state.kernel !== null && nodes.get(b.id)?.kernels.includes(state.kernel));
  if (chosen) requestAnimationFrame(() => requestAnimationFrame(() => view.show(chosen)));
  const every = (path) => () => {
    openModules.open = path;
    render();
  };
  const bar = el(
    "div",
    { class: "bar-top" },
    ...view.buttons,
    el("button", { type: "button", onclick: every(new Set(["", ...Object.keys(graph.modules)])) }, "Open all"),
    el("button", { type: "button", onclick: every(new Set([""])) }, "Fold all"),
    el(
      "span",
      { class: "soft" },
      `${plural(graph.nodes.filter((n) => n.op.includes(".")).length, "operator")}, ${plural(kernels().length, "kernel")}`,
    ),
    legend(kernels()),
  );
  return [bar, view.frame];
}

function openAround(root, name) {
  const walk = (group) => {
    if (group.nodes.some((n) => n.id === name)) return true;
    const inside = group.children.some(walk);
    return inside && (openModules.open.add(group.path), true);
  };
  const holder = (group) => (group.nodes.some((n) => n.id === name) ? group : group.children.map(holder).find(Boolean));
  walk(root);
  const own = holder(root);
  if (own) openModules.open.add(own.path);
}

function toggle(path) {
  openModules.open.has(path) ? openModules.open.delete(path) : openModules.open.add(path);
  render();
}

const pressed = (act) => ({
  onclick: act,
  onkeydown: (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      event.stopPropagation();
      act();
    }
  },
});

function openGroup(box) {
  const fold = () => toggle(box.group.path);
  return svg(
    "g",
    { class: "group", transform: `translate(${box.x} ${box.y})` },
    svg("rect", { width: box.width, height: box.height, rx: 10 }),
    svg(
      "g",
      {
        tabindex: 0,
        role: "button",
        "aria-label": `Fold ${box.group.path}`,
        style: "cursor:pointer",
        ...pressed(fold),
      },
      svg(
        "text",
        { x: 12, y: 18 },
        `▾ ${box.group.title}`,
        svg("tspan", { class: "soft", "font-weight": 400, dx: 6 }, box.group.kind),
      ),
    ),
  );
}

function foldedGroup(box, nodes) {
  const own = new Set(namesOf(box.group).flatMap((name) => nodes.get(name)?.kernels || []));
  const time = kernels()
    .filter((k) => own.has(k.index))
    .reduce((t, k) => t + (k.us || 0), 0);
  const text = `${plural(sizeOf(box.group), "operator")}, ${plural(own.size, "kernel")}${time ? `, ${micros(time)}` : ""}`;
  box.width = Math.max(box.width, textWidth(text) + 20);
  return svg(
    "g",
    {
      class: "node folded",
      transform: `translate(${box.x} ${box.y})`,
      tabindex: 0,
      role: "button",
      "aria-label": `Open ${box.group.path}: ${text}`,
      ...pressed(() => toggle(box.group.path)),
    },
    svg("rect", { width: box.width, height: box.height, rx: 8 }),
    svg("text", { x: 12, y: 17 }, `▸ ${box.group.title}`, svg("tspan", { dx: 6, fill: "var(--soft)" }, box.group.kind)),
    svg("text", { x: 12, y: 33, class: "soft" }, text),
  );
}

function leafBox(box, nodes) {
  const node = nodes.get(box.leaf.node.name) || { kernels: [] };
  const io = box.leaf.result !== undefined || box.leaf.node.op === "input";
  const own = io ? null : node.kernels[0];
  const kind = own === undefined || own === null ? "other" : kindOf(kernels()[own]);
  const here = state.node === box.id,
    same = !here && state.kernel !== null && node.kernels.includes(state.kernel) && !io;
  const title = leafTitle(box.leaf);
  const say = `${title} ${box.leaf.node.type}${own === null ? "" : own === undefined ? ": no kernel of its own" : `: kernel ${own}`}`;
  const choose = () =>
    box.leaf.result === undefined
      ? select({ node: box.id, kernel: own ?? null })
      : select({ node: box.leaf.result, kernel: node.kernels[0] ?? null });
  return svg(
    "g",
    {
      class: `node k-${kind}${io ? " io" : ""}${here ? " here" : ""}${same ? " same" : ""}`,
      transform: `translate(${box.x} ${box.y})`,
      tabindex: 0,
      role: "button",
      "aria-label": say,
      "data-node": box.id,
      ...pressed(choose),
    },
    svg("rect", { width: box.width, height: box.height, rx: 7 }),
    io ? null : svg("rect", { class: "side", width: 5, height: box.height - 8, x: 4, y: 4, rx: 2.5 }),
    svg(
      "text",
      { x: 15, y: box.leaf.node.type ? 17 : 20 },
      title.split("  ")[0],
      box.leaf.module ? svg("tspan", { dx: 6, fill: "var(--soft)" }, box.leaf.module) : null,
    ),
    box.leaf.node.type ? svg("text", { x: 15, y: 33, class: "soft" }, box.leaf.node.type) : null,
    own === undefined || own === null
      ? null
      : svg("text", { class: "badge", x: box.width - 7, y: 15, "text-anchor": "end" }, `#${own}`),
    svg("title", {}, say),
  );
}

function graphEdge(edge, nodes) {
  const inside = edge.pairs.some(([a, b]) =>
    (nodes.get(a)?.kernels || []).some((k) => (nodes.get(b)?.kernels || []).includes(k)),
  );
  const lit = edge.pairs.some(([a, b]) => a === state.node || b === state.node);
  const names = edge.pairs
    .map(([a, b]) => `${a} → ${b.replace("result ", "output ")}`)
    .slice(0, 6)
    .join("\n");
  return svg(
    "path",
    { class: `edge${inside ? " inside" : ""}${lit ? " lit" : ""}`, d: edgePath(edge), "marker-end": "url(#arrow)" },
    svg("title", {}, inside ? `${names}\nfused: the value stays in registers or cache` : names),
  );
}

// -- fusions --

const bufferOf = (label) => (label.match(/\(([^()]*)\)$/) || [null, label])[1];

/** Kernel that writes each buffer: the first that names it. */
function writers() {
  const found = new Map();
  for (const b of target().memory.buffers)
    for (const name of [b.name, ...b.over]) if (name === b.name) found.set(name, b.first);
  for (const kernel of kernels())
    for (const text of kernel.buffers) {
      const [kind, name] = text.split(":");
      if (!["const", "input", "state"].includes(kind) && !found.has(name)) found.set(name, kernel.index);
    }
  return found;
}

function fusionsView() {
  const made = writers();
  const list = entry().fusions.map((f) => ({
    ...f,
    from: made.get(bufferOf(f.producer)),
    to: made.get(bufferOf(f.consumer)),
  }));
  const edges = new Map();
  for (const kernel of kernels())
    for (const text of kernel.buffers) {
      const [kind, name] = text.split(":"),
        from = made.get(name);
      if (kind !== "const" && from !== undefined && from < kernel.index)
        edges.set(`${from} ${kernel.index}`, { from, to: kernel.index, name, reasons: [] });
    }
  for (const f of list)
    if (!f.done) {
      const edge = edges.get(`${f.from} ${f.to}`);
      if (edge) edge.reasons.push(f.reason);
    }
  const view = kernelPicture([...edges.values()]);
  const refused = list.filter((f) => !f.done),
    done = list.filter((f) => f.done);
  const row = (f) =>
    el(
      "tr",
      {
        class: f.to !== undefined || f.from !== undefined ? "pick" : "",
        onclick: () => select({ kernel: f.to ?? f.from ?? null, node: null }),
      },
      el("td", { class: "name" }, f.producer),
      el("td", { class: "name" }, f.consumer),
      el("td", { class: f.done ? "good" : "bad" }, f.done ? "fused" : "not fused"),
      el("td", {}, f.reason),
    );
  const table = el(
    "div",
    { class: "panel", tabindex: 0, role: "region", "aria-label": "Fusions", style: "margin:0;border-radius:0;border-width:1px 0 0;max-height:42%;overflow:auto;flex:none" },
    el(
      "table",
      {},
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["producer", "consumer", "decision", "reason"].map((t) => el("th", {}, t)),
        ),
      ),
      el("tbody", {}, [...refused, ...done].map(row)),
    ),
  );
  const bar = el(
    "div",
    { class: "bar-top" },
    ...view.buttons,
    el("span", {}, `${plural(done.length, "fusion")}, ${plural(refused.length, "refusal")}`),
    el(
      "span",
      { class: "legend" },
      el("span", { class: "bad" }, "- - - not fused, and why"),
      el("span", {}, "—— a result in memory"),
      legend(kernels()),
    ),
  );
  return [bar, view.frame, table];
}

/** Kernels as boxes with their operators; the results between them; dashed where a fusion was refused. */
function kernelPicture(edges) {
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: "TB", nodesep: 26, ranksep: 34, marginx: 16, marginy: 16 });
  const titles = kernels().map((k) => `#${k.index}  ${k.ops.map(short).join(" + ")}`);
  kernels().forEach((k, i) =>
    g.setNode(`${i}`, { width: Math.min(420, Math.max(textWidth(titles[i]), k.name.length * 6.2) + 34), height: 44 }),
  );
  for (const e of edges) g.setEdge(`${e.from}`, `${e.to}`, {}, e.name);
  dagre.layout(g);
  const content = svg("g", {}, arrow());
  for (const e of edges) {
    const points = g.edge(`${e.from}`, `${e.to}`, e.name).points;
    const path = points.map((p, i) => `${i ? "L" : "M"}${p.x},${p.y}`).join("");
    const why = [...new Set(e.reasons)].join("; ");
    content.append(
      svg(
        "path",
        {
          class: `edge${why ? " refused" : ""}${state.kernel === e.from || state.kernel === e.to ? " lit" : ""}`,
          d: path,
          "marker-end": "url(#arrow)",
        },
        svg("title", {}, `${e.name}: kernel ${e.from} → kernel ${e.to}${why ? `\nnot fused: ${why}` : ""}`),
      ),
    );
  }
  kernels().forEach((k, i) => {
    const at = g.node(`${i}`),
      x = at.x - at.width / 2,
      y = at.y - at.height / 2;
    const cut = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
    content.append(
      svg(
        "g",
        {
          class: `node k-${kindOf(k)}${state.kernel === i ? " here" : ""}`,
          transform: `translate(${x} ${y})`,
          tabindex: 0,
          role: "button",
          "aria-label": `kernel ${titles[i]}`,
          ...pressed(() => select({ kernel: i, node: null })),
        },
        svg("rect", { width: at.width, height: at.height, rx: 8 }),
        svg("rect", { class: "side", width: 5, height: at.height - 8, x: 4, y: 4, rx: 2.5 }),
        svg("text", { x: 16, y: 18 }, cut(titles[i], 54)),
        svg("text", { x: 16, y: 34, class: "soft" }, cut(k.name, 60)),
        svg("title", {}, `${titles[i]}\n${k.name}`),
      ),
    );
  });
  return canvas(content, g.graph().width || 100, g.graph().height || 100, "Kernels and what lies between them");
}
