// Where the graph's boxes lie: each open module is laid out by dagre on its own, then is one box of the module around it,
// so that thousands of nodes take thousands of small layouts' time.

const BOX = { height: 30, pad: 14, head: 26, letter: 7.1 };

/** The tree of modules that the model calls; nodes hang under the innermost one. Weights are left out. */
function moduleTree(graph) {
  const root = { path: "", title: "", kind: graph.modules[""] || "", children: [], nodes: [], parent: null };
  const groups = new Map([["", root]]);
  const group = (path) => {
    if (groups.has(path)) return groups.get(path);
    let above = path;
    do above = above.includes(".") ? above.slice(0, above.lastIndexOf(".")) : "";
    while (above && !(above in graph.modules));
    const parent = group(above);
    const own = {
      path,
      title: above ? path.slice(above.length + 1) : path,
      kind: graph.modules[path] || "",
      children: [],
      nodes: [],
      parent,
    };
    parent.children.push(own);
    groups.set(path, own);
    return own;
  };
  for (const node of graph.nodes) {
    if (node.op === "weight") continue;
    group(node.module in graph.modules ? node.module : "").nodes.push({ id: node.name, leaf: true, node });
  }
  for (const name of graph.results)
    root.nodes.push({
      id: `result ${name}`,
      leaf: true,
      result: name,
      node: { name, op: "output", type: "", inputs: [name] },
    });
  flatten(root);
  return root;
}

/** A module of one operator is that operator, with the module's name. */
function flatten(group) {
  for (const child of [...group.children]) {
    flatten(child);
    if (child.children.length === 0 && child.nodes.length === 1) {
      group.children.splice(group.children.indexOf(child), 1);
      group.nodes.push({ ...child.nodes[0], module: child.path.slice(group.path ? group.path.length + 1 : 0) });
    }
  }
}

const sizeOf = (group) => group.nodes.length + group.children.reduce((n, child) => n + sizeOf(child), 0);

/** The modules that are open at first: from the outside in, while the picture holds few boxes. */
function openAtFirst(root, most = 70) {
  const open = new Set([""]);
  let boxes = root.nodes.length + root.children.length;
  for (let ring = root.children; ring.length; ring = ring.flatMap((g) => (open.has(g.path) ? g.children : []))) {
    for (const group of ring) {
      const more = group.nodes.length + group.children.length;
      if (boxes + more <= most) {
        open.add(group.path);
        boxes += more;
      }
    }
  }
  return open;
}

/** Boxes and edges with their places. `open`: paths of open modules. */
function layoutGraph(root, open) {
  const boxOf = new Map(); // node name -> chain of boxes around it, the outermost first
  const boxes = [];
  const build = (group, chain) => {
    const own = group.parent
      ? { id: `module ${group.path}`, group, open: open.has(group.path), inner: [] }
      : { id: "", group, open: true, inner: [] };
    const inside = group.parent ? [...chain, own] : chain;
    for (const leaf of group.nodes) {
      const box = { id: leaf.id, leaf };
      boxOf.set(leaf.id, own.open ? [...inside, box] : inside);
      if (own.open) own.inner.push(box);
    }
    for (const child of group.children) {
      const box = build(child, inside);
      if (own.open) own.inner.push(box);
      else for (const name of namesOf(child)) boxOf.set(name, inside);
    }
    return own;
  };
  const top = build(root, []);
  const edges = new Map();
  for (const [id, chain] of boxOf) {
    const leaf = leafOf(root, id);
    for (const input of leaf.node.inputs) {
      const from = boxOf.get(input);
      if (!from) continue;
      const a = from[from.length - 1],
        b = chain[chain.length - 1];
      let level = 0;
      while (from[level] === chain[level] && level < from.length && level < chain.length) level++;
      if (a === b || level >= from.length || level >= chain.length) continue;
      const key = `${a.id}\n${b.id}`;
      if (edges.has(key)) edges.get(key).pairs.push([input, id]);
      else
        edges.set(key, {
          from: a,
          to: b,
          a: from[level],
          b: chain[level],
          parent: level ? from[level - 1] : top,
          pairs: [[input, id]],
        });
    }
  }
  const inside = new Map(); // box -> the edges that dagre draws in it
  for (const edge of edges.values()) inside.set(edge.parent, [...(inside.get(edge.parent) || []), edge]);
  place(top, inside);
  settle(top, 0, 0, boxes);
  return { boxes, edges: [...edges.values()], width: top.width, height: top.height };
}

const namesOf = (group) => [...group.nodes.map((n) => n.id), ...group.children.flatMap(namesOf)];

const leaves = new WeakMap();
function leafOf(root, id) {
  if (!leaves.has(root)) {
    const found = new Map();
    const walk = (group) => {
      for (const n of group.nodes) found.set(n.id, n);
      group.children.forEach(walk);
    };
    walk(root);
    leaves.set(root, found);
  }
  return leaves.get(root).get(id);
}

/** Sizes and relative places of what is inside a box. */
function place(box, edges) {
  if (box.leaf) return measure(box, leafTitle(box.leaf), box.leaf.node.type);
  if (!box.open) return measure(box, groupTitle(box.group), plural(sizeOf(box.group), "operator"));
  for (const inner of box.inner) place(inner, edges);
  const g = new dagre.graphlib.Graph({ multigraph: true });
  g.setGraph({ rankdir: "TB", nodesep: 22, ranksep: 30, marginx: BOX.pad, marginy: BOX.pad });
  for (const inner of box.inner) g.setNode(inner.id, { width: inner.width, height: inner.height });
  const own = edges.get(box) || [];
  const drawn = new Map();
  for (const e of own) {
    const key = `${e.a.id}\n${e.b.id}`;
    if (!drawn.has(key)) {
      g.setEdge(e.a.id, e.b.id, {}, key);
      drawn.set(key, []);
    }
    drawn.get(key).push(e);
  }
  dagre.layout(g);
  for (const inner of box.inner) {
    const at = g.node(inner.id);
    inner.x = at.x - inner.width / 2;
    inner.y = at.y - inner.height / 2 + (box.id ? BOX.head : 0);
  }
  for (const [key, list] of drawn) {
    const [a, b] = key.split("\n");
    const points = g.edge(a, b, key).points.map((p) => ({ x: p.x, y: p.y + (box.id ? BOX.head : 0) }));
    for (const e of list) e.points = points;
  }
  const whole = g.graph();
  const title = box.id ? textWidth(groupTitle(box.group)) + 40 : 0;
  box.width = Math.max(Number.isFinite(whole.width) ? whole.width : 0, title, 60);
  box.height = (Number.isFinite(whole.height) ? whole.height : 0) + (box.id ? BOX.head : 0);
}

/** Absolute places, the outermost box first. */
function settle(box, x, y, boxes) {
  box.x = (box.id ? box.x : 0) + x;
  box.y = (box.id ? box.y : 0) + y;
  if (box.id) boxes.push(box);
  if (!box.leaf && box.open) for (const inner of box.inner) settle(inner, box.x, box.y, boxes);
}

const textWidth = (text) => text.length * BOX.letter;
const leafTitle = (leaf) =>
  (leaf.result !== undefined ? "output" : leaf.node.op === "input" ? leaf.node.name : short(leaf.node.op)) +
  (leaf.module ? `  ${leaf.module}` : "");
const groupTitle = (group) => (group.kind ? `${group.title}  ${group.kind}` : group.title);

function measure(box, title, type) {
  box.width = Math.max(90, textWidth(title) + 30, (type || "").length * 6.3 + 30);
  box.height = type ? BOX.height + 12 : BOX.height;
}

/** The line of an edge: out of its first box's bottom, along dagre's points, into the top of its last. */
function edgePath(edge) {
  const start = { x: edge.from.x + edge.from.width / 2, y: edge.from.y + edge.from.height };
  const end = { x: edge.to.x + edge.to.width / 2, y: edge.to.y };
  const parent = edge.parent;
  const middle = (edge.points || [])
    .slice(1, -1)
    .map((p) => ({ x: p.x + parent.x, y: p.y + parent.y }))
    .filter((p) => p.y > start.y + 4 && p.y < end.y - 4);
  const points = [start, ...middle, end];
  let path = `M${start.x},${start.y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1],
      b = points[i],
      bend = (b.y - a.y) / 2;
    path += `C${a.x},${a.y + bend} ${b.x},${b.y - bend} ${b.x},${b.y}`;
  }
  return path;
}
