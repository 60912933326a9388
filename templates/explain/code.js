// The user's lines beside the generated source.

/** The user's file beside the generated source of a kernel: lines lead to kernels and back. */
function codeView() {
  const lines = linesIndex();
  const files = report.sources
    .map((s, i) => ({ ...s, i }))
    .filter((s) => lines.has(s.i) || s.parts.length)
    .sort((a, b) => b.user - a.user);
  if (!files.length) return [el("p", { class: "note" }, "The package names no lines of the model.")];
  if (state.file === null || !files.some((f) => f.i === state.file))
    state.file =
      state.kernel !== null && kernelPlaces(kernels()[state.kernel])[0]
        ? kernelPlaces(kernels()[state.kernel])[0].file
        : files[0].i;
  const file = report.sources[state.file],
    named = lines.get(state.file) || new Map();
  const chooser = el(
    "select",
    { "aria-label": "File of the model", onchange: (event) => select({ file: +event.target.value, line: null }) },
    files.map((f) => el("option", { value: f.i, selected: f.i === state.file }, f.name)),
  );
  const left = el(
    "section",
    {},
    el(
      "div",
      { class: "head" },
      chooser,
      file.state === "changed" ? el("span", { class: "warn" }, "the file has changed since it was compiled") : null,
    ),
    userCode(file, named),
  );
  const chosen = state.kernel !== null ? kernels()[state.kernel] : null;
  const own = state.line !== null ? [...(named.get(state.line)?.kernels || [])] : [];
  const shown =
    own.length && (chosen === null || !own.includes(chosen.index))
      ? kernels()[own[0]]
      : chosen || (own.length ? kernels()[own[0]] : null);
  const chips = own.map((k) =>
    el(
      "button",
      {
        type: "button",
        class: "chip mono",
        onclick: () => select({ kernel: k }),
        "aria-pressed": shown && shown.index === k ? "true" : "false",
      },
      `#${k} ${kernels()[k].name}`,
    ),
  );
  const head = shown
    ? [
        el("strong", { class: "mono" }, `#${shown.index} ${shown.name}`),
        el("span", { class: "soft" }, shown.us === undefined ? "" : `${micros(shown.us)}, ${percent(shown.share)}`),
        el("span", {}, placeLinks(shown)),
      ]
    : [el("span", { class: "soft" }, "Choose a line that is numbered in colour to see the kernels that it became.")];
  const right = el(
    "section",
    { id: "generated" },
    el(
      "div",
      { class: "head" },
      head,
      own.length > 1 ? el("div", {}, el("span", { class: "soft" }, `line ${state.line}: `), chips) : null,
    ),
    shown ? generated(shown) : codeBox("No kernel is chosen"),
  );
  requestAnimationFrame(() => main.querySelector(".row.here")?.scrollIntoView({ block: "center" }));
  return [el("div", { class: "beside" }, left, right)];
}

function userCode(file, named) {
  const box = codeBox(`Lines of ${file.name}`);
  if (!file.parts.length) {
    box.append(
      el(
        "p",
        { class: "note", style: "padding:12px 16px" },
        "The file is not where the report was made. Give its folder: mycc explain PACKAGE --source FOLDER. Lines that became kernels:",
      ),
    );
    for (const [line, what] of [...named].sort((a, b) => a[0] - b[0]))
      box.append(userRow(line, [...new Set(what.nodes)].slice(0, 6).join(", "), what, file));
    return box;
  }
  let before = 1;
  for (const [first, text] of file.parts) {
    if (first > before) box.append(el("div", { class: "cut" }, `lines ${before} to ${first - 1}`));
    const rows = colouredLines(text.replace(/\n$/, ""), "python");
    rows.forEach((html, i) => box.append(userRow(first + i, html, named.get(first + i), file)));
    before = first + rows.length;
  }
  return box;
}

function userRow(number, html, what, file) {
  if (!what || !what.kernels.size) return codeRow(number, html, {}, measured() ? "" : null);
  const own = [...what.kernels].map((k) => kernels()[k]);
  const here =
    state.line === number || (state.line === null && state.kernel !== null && what.kernels.has(state.kernel));
  const choose = () =>
    select({
      line: number,
      kernel: what.kernels.has(state.kernel) ? state.kernel : own.sort((a, b) => (b.us || 0) - (a.us || 0))[0].index,
      node: null,
    });
  const say = `Line ${number}: ${own.map((k) => k.name).join(", ")}`;
  const heat = measured() ? micros(own.reduce((t, k) => t + k.us, 0)) : null;
  return codeRow(
    number,
    html,
    {
      class: `row named${here ? " here" : ""}`,
      tabindex: 0,
      role: "button",
      "aria-label": say,
      title: own.map((k) => `#${k.index} ${k.name}`).join("\n"),
      "data-row": number,
      ...pressed(choose),
    },
    heat,
  );
}

function generated(kernel) {
  const box = codeBox(`Generated source of ${kernel.name}`);
  if (kernel.arguments.length)
    box.append(
      el(
        "div",
        { class: "cut" },
        kernel.arguments.map((a) => el("span", { class: "chip" }, el("b", {}, a.name), ` ${a.value}`)),
      ),
    );
  const code = kernel.code === null ? null : report.code[kernel.code];
  if (!code)
    box.append(
      el(
        "p",
        { class: "note", style: "padding:12px 16px" },
        "The package keeps no source of this kernel: it is a routine of mycc's library, or the package was compiled with codegen.sources=no.",
      ),
    );
  else {
    const text = code.text.replace(/\n$/, ""),
      places = linePlaces(kernel, text.split("\n"));
    colouredLines(text, code.language).forEach((html, i) => box.append(generatedRow(i + 1, html, places[i], kernel)));
  }
  return box;
}

/** A line of a generated source, which leads to the lines of the model that it computes. */
function generatedRow(number, html, places, kernel) {
  if (!places.length) return codeRow(number, html);
  const here = state.line !== null && places.some((p) => p.file === state.file && p.line === state.line);
  const names = places.map((p) => p.text).join(", ");
  const { file, line } = places[0];
  return codeRow(number, html, {
    class: `row named${here ? " here" : ""}`,
    tabindex: 0,
    role: "button",
    "aria-label": `Generated line ${number}, from ${names}`,
    title: names,
    "data-generated": number,
    ...pressed(() => select({ tab: "code", file, line, kernel: kernel.index, node: null })),
  });
}

/**
 * For each line of a kernel's source the places in the model: of the operators that it names, and of those that read or
 * write the arguments that it names. Lines that only declare have none.
 */
function linePlaces(kernel, lines) {
  const words = wordNodes(kernel);
  return lines.map((line) => {
    if (!/[(=[]/.test(line) || /^\s*(\/\/|#|struct |def |(extern "C" )?(static )?void )|\) const \{$/.test(line)) return [];
    const found = new Map();
    for (const word of line.match(/[A-Za-z_]\w*/g) || [])
      for (const node of words.get(word) || words.get(word.split("_")[0]) || [])
        for (const place of placesOf(node)) found.set(place.text, place);
    return [...found.values()].sort((a, b) => report.sources[b.file].user - report.sources[a.file].user);
  });
}

/** Word of a kernel's source -> nodes of the graph: names of operators and of arguments. */
function wordNodes(kernel) {
  const all = graphIndex(),
    own = kernel.nodes.map((name) => all.get(name)).filter(Boolean),
    names = new Set(kernel.nodes);
  const words = new Map(own.map((n) => short(n.op)).map((op) => [op, own.filter((n) => short(n.op) === op)]));
  const results = own.filter((n) => !own.some((reader) => reader.inputs.includes(n.name)));
  const outside = (name) => !names.has(name) && !["weight", "input"].includes(all.get(name)?.op);
  for (const { name, value } of kernel.arguments) {
    const [kind, what] = value.split(" ");
    if (kind === "weight" || kind === "input") words.set(name, own.filter((n) => n.inputs.includes(what)));
    else if (name.startsWith("y")) words.set(name, results);
    else if (kind === "temp") words.set(name, own.filter((n) => n.inputs.some(outside)));
  }
  if (["gemm", "conv"].includes(kindOf(kernel)) && own.length) words.set("acc", [own[0]]);
  return words;
}
