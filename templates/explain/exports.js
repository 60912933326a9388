// Files that the page gives: the same forms as `mycc explain --trace` and `--dot` write.

function exportFile(kind) {
  const name = report.package.name;
  if (kind === "json") save(`${name}.explain.json`, JSON.stringify(report));
  if (kind === "trace") save(`${name}.trace.json`, JSON.stringify(traceEvents()));
  if (kind === "dot") save(`${name}.dot`, dotText());
}

function save(name, text) {
  const link = el("a", {
    href: URL.createObjectURL(new Blob([text], { type: "application/octet-stream" })),
    download: name,
  });
  link.click();
  URL.revokeObjectURL(link.href);
}

function traceEvents() {
  let at = 0;
  const events = kernels().map((k) => {
    const time = k.us ?? 1;
    const event = {
      name: k.name,
      cat: k.kind,
      ph: "X",
      pid: 0,
      tid: 0,
      ts: at,
      dur: time,
      args: { operators: k.ops.join(", "), lines: k.sources.join(", ") },
    };
    at += time;
    return event;
  });
  return {
    traceEvents: [
      { name: "process_name", ph: "M", pid: 0, args: { name: `${report.package.name} ${state.target}` } },
      ...events,
    ],
    displayTimeUnit: "ns",
  };
}

function dotText() {
  const quoted = (text) => JSON.stringify(text),
    graph = entry().graph;
  const lines = [`digraph ${quoted(entry().name)} {`];
  for (const n of graph ? graph.nodes : [])
    if (n.op !== "weight") {
      lines.push(`  ${quoted(n.name)} [label=${quoted(`${short(n.op)}\n${n.type}`)}];`);
      for (const input of n.inputs)
        if (graph.nodes.find((m) => m.name === input).op !== "weight")
          lines.push(`  ${quoted(input)} -> ${quoted(n.name)};`);
    }
  return [...lines, "}", ""].join("\n");
}
