// A drawing that is moved and scaled by mouse, touch and keys.

/** content: an SVG group in its own units. Returns the element and `show(box)`, which brings a rectangle into view. */
function canvas(content, width, height, label) {
  const root = svg("svg", {
    role: "application",
    "aria-label": `${label}. Drag or use the arrow keys with shift to move, plus and minus to scale, 0 to see all.`,
    tabindex: 0,
  });
  const moved = svg("g", {}, content);
  root.append(moved);
  const frame = el("div", { class: "canvas" }, root);
  let view = { x: 0, y: 0, scale: 1 };
  const apply = () => moved.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
  const size = () => ({ w: frame.clientWidth || 800, h: frame.clientHeight || 500 });
  const zoom = (factor, cx, cy) => {
    const scale = Math.min(4, Math.max(0.02, view.scale * factor));
    view = { x: cx - (cx - view.x) * (scale / view.scale), y: cy - (cy - view.y) * (scale / view.scale), scale };
    apply();
  };
  const fit = () => {
    const { w, h } = size();
    const scale = Math.max(Math.min(1.15, (w - 32) / width, (h - 32) / height), Math.min(0.8, (w - 32) / width));
    view = { scale, x: (w - width * scale) / 2, y: Math.max(16, (h - height * scale) / 2) };
    apply();
  };
  const all = () => {
    const { w, h } = size();
    const scale = Math.min(1.15, (w - 32) / width, (h - 32) / height);
    view = { scale, x: (w - width * scale) / 2, y: (h - height * scale) / 2 };
    apply();
  };
  root.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const at = root.getBoundingClientRect();
      if (event.ctrlKey || !event.shiftKey)
        zoom(Math.exp(-event.deltaY * 0.0016), event.clientX - at.left, event.clientY - at.top);
      else {
        view.x -= event.deltaY;
        apply();
      }
    },
    { passive: false },
  );
  const fingers = new Map();
  root.addEventListener("pointerdown", (event) => {
    fingers.set(event.pointerId, event);
    root.classList.add("moving");
  });
  window.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    root.classList.remove("moving");
  });
  root.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (!before) return;
    const others = [...fingers.values()].filter((f) => f.pointerId !== event.pointerId);
    if (others.length) {
      const far = (a, b) => Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) || 1;
      const at = root.getBoundingClientRect();
      zoom(far(event, others[0]) / far(before, others[0]), others[0].clientX - at.left, others[0].clientY - at.top);
    } else {
      view.x += event.clientX - before.clientX;
      view.y += event.clientY - before.clientY;
      apply();
    }
    fingers.set(event.pointerId, event);
  });
  root.addEventListener("keydown", (event) => {
    const { w, h } = size();
    const keys = {
      "+": () => zoom(1.25, w / 2, h / 2),
      "=": () => zoom(1.25, w / 2, h / 2),
      "-": () => zoom(0.8, w / 2, h / 2),
      0: all,
    };
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    if (keys[event.key]) keys[event.key]();
    else if (step && (event.shiftKey || event.target === root)) {
      view.x += step[0];
      view.y += step[1];
      apply();
    } else return;
    event.preventDefault();
  });
  const show = (box) => {
    const { w, h } = size();
    const scale = Math.max(view.scale, 0.7);
    view = { scale, x: w / 2 - (box.x + box.width / 2) * scale, y: h / 2 - (box.y + box.height / 2) * scale };
    apply();
  };
  requestAnimationFrame(fit);
  const button = (text, title, act) => el("button", { type: "button", title, "aria-label": title, onclick: act }, text);
  const buttons = [
    button("+", "Larger", () => zoom(1.3, size().w / 2, size().h / 2)),
    button("−", "Smaller", () => zoom(0.77, size().w / 2, size().h / 2)),
    button("Fit", "See all", all),
  ];
  return { frame, show, buttons, fit };
}

const arrow = () =>
  svg(
    "defs",
    {},
    svg(
      "marker",
      {
        id: "arrow",
        viewBox: "0 0 8 8",
        refX: 7,
        refY: 4,
        markerUnits: "userSpaceOnUse",
        markerWidth: 9,
        markerHeight: 9,
        orient: "auto",
      },
      svg("path", { d: "M0,0.5L8,4L0,7.5z" }),
    ),
  );
