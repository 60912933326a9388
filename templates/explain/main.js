// Tabs, selection, search, and the address: #tab=code&kernel=3 leads back to what was shown.

const main = document.getElementById("main"),
  detail = document.getElementById("detail");
const TABS = [
  ["overview", "Overview", overviewView],
  ["graph", "Graph", graphView],
  ["kernels", "Kernels", kernelsView],
  ["code", "Code", codeView],
  ["fusions", "Fusions", fusionsView],
  ["memory", "Memory", memoryView],
  ["roofline", "Roofline", rooflineView],
  ["timeline", "Timeline", timelineView],
  ["weights", "Weights", weightsView],
  ["package", "Package", packageView],
  ...(report.package.quantization ? [["quantization", "Quantisation", quantizationView]] : []),
  ...(report.against ? [["compare", "Compare", compareView]] : []),
];
const FLUSH = ["graph", "code", "fusions"];

function select(change) {
  Object.assign(state, change);
  if (change.kernel !== undefined && change.line === undefined && change.kernel !== null && state.tab === "code") {
    const place = kernelPlaces(kernels()[change.kernel])[0],
      lines = linesIndex().get(state.file);
    if (place && !(state.line !== null && lines?.get(state.line)?.kernels.has(change.kernel))) {
      state.file = place.file;
      state.line = place.line;
    }
  }
  render();
}

function render() {
  const focused = document.activeElement,
    key =
      focused &&
      ["data-node", "data-row", "data-kernel"].map((a) => [a, focused.getAttribute(a)]).find(([, v]) => v !== null);
  document
    .getElementById("tabs")
    .replaceChildren(
      ...TABS.map(([id, title]) =>
        el(
          "button",
          {
            type: "button",
            role: "tab",
            id: `tab-${id}`,
            "aria-selected": `${state.tab === id}`,
            "aria-controls": "main",
            tabindex: state.tab === id ? 0 : -1,
            onclick: () => select({ tab: id }),
            onkeydown: moveTab,
          },
          title,
        ),
      ),
    );
  const top = main.scrollTop,
    same = main.dataset.tab === state.tab;
  main.className = FLUSH.includes(state.tab) ? "flush" : "";
  main.dataset.tab = state.tab;
  main.replaceChildren(...TABS.find(([id]) => id === state.tab)[2]().filter(Boolean));
  main.scrollTop = same ? top : 0;
  const parts = detailOf();
  detail.hidden = !parts.length || state.tab === "code";
  detail.replaceChildren(...parts);
  if (key) document.querySelector(`[${key[0]}="${CSS.escape(key[1])}"]`)?.focus({ preventScroll: true });
  writeAddress();
}

/** The address leads back to what is shown; a frame of a notebook has none. */
function writeAddress() {
  const words = { tab: state.tab, entry: state.entry || "", target: state.target, kernel: state.kernel, node: state.node };
  if (state.line !== null) Object.assign(words, { line: state.line, file: state.file });
  const kept = Object.entries(words).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  try {
    history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
  } catch {
    return;
  }
}

function moveTab(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const at = TABS.findIndex(([id]) => id === state.tab);
  select({ tab: TABS[(at + step + TABS.length) % TABS.length][0] });
  document.getElementById(`tab-${state.tab}`).focus();
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (TABS.some(([id]) => id === words.get("tab"))) state.tab = words.get("tab");
  if (report.entry_points[+words.get("entry")]) state.entry = +words.get("entry") || 0;
  const known = Object.keys(entry().targets);
  const first = report.measured && report.measured.entry === entry().name ? report.measured.target : known[0];
  state.target = known.includes(words.get("target")) ? words.get("target") : known.includes(first) ? first : known[0];
  const number = (name) => (words.get(name) ? +words.get(name) : null);
  state.kernel = kernels()[number("kernel")] ? number("kernel") : null;
  state.node = graphIndex().has(words.get("node")) ? words.get("node") : null;
  state.line = number("line");
  state.file = report.sources[number("file")] ? number("file") : null;
}

function choosers() {
  const options = (id, values, chosen, act) => {
    const list = document.getElementById(id);
    list.replaceChildren(...values.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
    list.onchange = () => act(list.value);
    document.getElementById(`${id}-pick`).hidden = values.length < 2;
  };
  options(
    "entry",
    report.entry_points.map((e, i) => [`${i}`, e.name]),
    `${state.entry}`,
    (v) => {
      Object.assign(state, { entry: +v, kernel: null, node: null });
      state.target = Object.keys(entry().targets)[0];
      choosers();
      render();
    },
  );
  options(
    "target",
    Object.keys(entry().targets).map((t) => [t, t]),
    state.target,
    (v) => select({ target: v, kernel: null, node: null }),
  );
}

function searchBox() {
  const input = document.getElementById("search"),
    list = document.getElementById("found");
  let found = [],
    at = 0;
  const show = () => {
    list.replaceChildren(
      ...found.map((f, i) =>
        el(
          "li",
          {
            role: "option",
            "aria-selected": `${i === at}`,
            onmousedown: (event) => {
              event.preventDefault();
              go(f);
            },
          },
          el("span", { class: "mono" }, f.title),
          el("span", { class: "soft" }, f.kind),
        ),
      ),
    );
    list.hidden = !found.length;
  };
  const go = (f) => {
    input.value = "";
    found = [];
    show();
    input.blur();
    f.go();
  };
  input.addEventListener("input", () => {
    found = search(input.value.trim().toLowerCase());
    at = 0;
    show();
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      at = (at + (event.key === "ArrowDown" ? 1 : found.length - 1)) % (found.length || 1);
      show();
      event.preventDefault();
    }
    if (event.key === "Enter" && found[at]) go(found[at]);
    if (event.key === "Escape") {
      input.value = "";
      found = [];
      show();
      input.blur();
    }
  });
  input.addEventListener("blur", () => {
    list.hidden = true;
  });
  document.addEventListener("keydown", (event) => {
    if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
    if (event.key === "/") {
      input.focus();
      event.preventDefault();
    }
    if (event.key === "Escape") select({ kernel: null, node: null });
  });
}

function search(words) {
  if (!words) return [];
  const found = [],
    has = (...texts) => texts.some((t) => t.toLowerCase().includes(words));
  if ("slowest".startsWith(words) && measured()) {
    const slow = [...kernels()].sort((a, b) => b.us - a.us)[0];
    found.push({
      title: `#${slow.index} ${slow.name}`,
      kind: "the slowest kernel",
      go: () => select({ kernel: slow.index, node: null }),
    });
  }
  for (const k of kernels())
    if (has(`#${k.index}`, k.name, ...k.ops))
      found.push({ title: `#${k.index} ${k.name}`, kind: "kernel", go: () => select({ kernel: k.index, node: null }) });
  for (const [file, lines] of linesIndex())
    for (const line of lines.keys()) {
      const text = `${report.sources[file].name.split("/").pop()}:${line}`;
      if (has(text))
        found.push({
          title: text,
          kind: "line",
          go: () => select({ tab: "code", file, line, kernel: [...lines.get(line).kernels][0] ?? null, node: null }),
        });
    }
  for (const node of graphIndex().values())
    if (has(node.name, node.module, node.op))
      found.push({
        title: `${node.name}  ${node.module}`,
        kind: short(node.op),
        go: () =>
          select({ tab: "graph", node: node.op === "weight" ? null : node.name, kernel: node.kernels[0] ?? null }),
      });
  return found.slice(0, 40);
}

function theme() {
  const button = document.getElementById("theme"),
    wish = matchMedia("(prefers-color-scheme: dark)");
  let own = null;
  const apply = () => {
    const dark = own ?? wish.matches;
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "☀" : "☾";
  };
  button.onclick = () => {
    own = !(own ?? wish.matches);
    apply();
  };
  wish.addEventListener("change", apply);
  apply();
}

document.getElementById("title").textContent = report.package.name;
document.querySelectorAll("[data-export]").forEach((b) =>
  b.addEventListener("click", () => {
    exportFile(b.dataset.export);
    b.closest("details").open = false;
  }),
);
theme();
readAddress();
choosers();
searchBox();
render();
window.addEventListener("hashchange", () => {
  readAddress();
  choosers();
  render();
});
