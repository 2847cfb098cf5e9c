// A traced run that can be zoomed, moved and read bar by bar, with the pointer or by keyboard. The painting is in
// timeline_canvas.js, which stands before this text; the scene comes from timeline_explorer.py.

const HINT =
  "Point at a bar to read what it is; drag to move, Ctrl + wheel to zoom. By keyboard: Tab into the picture, arrow keys " +
  "from bar to bar, + and − to zoom, Shift + arrows to move, 0 for the whole run.";

function render({ model, el }) {
  el.classList.add("mla-view");
  const message = make("div", "mla-message", { role: "alert" });
  const title = make("div", "mla-title");
  const summary = make("div", "mla-summary");
  const legend = make("div", "mla-legend");
  const tools = make("div", "mla-tools", { role: "toolbar", "aria-label": "zoom" });
  const range = make("span", "mla-range");
  const frame = make("div", "mla-frame");
  const canvas = make("canvas", "mla-canvas", { tabindex: "0", role: "group", "aria-roledescription": "timeline" });
  const detail = make("div", "mla-detail", { "aria-live": "polite" });
  const button = make("button", "mla-text-button", { type: "button", "aria-expanded": "false" });
  const twin = make("pre", "mla-text", { tabindex: "0" });
  button.textContent = "Text version";
  twin.hidden = true;
  const bar = make("div", "mla-bar");
  bar.append(detail, button);
  frame.append(canvas);
  el.append(message, title, summary, legend, tools, frame, bar, twin);
  const paper = painter(canvas);

  let scene = { cycles: 0, lanes: [] };
  let [low, high] = [0, 1];
  let cursor = null; // { lane, bar } under the keyboard
  let hover = null; // the same under the pointer
  let drag = null;
  let pending = 0;

  for (const [name, label, act] of [
    ["+", "zoom in", () => zoom(0.5)],
    ["−", "zoom out", () => zoom(2)],
    ["◀", "earlier", () => pan(-0.25)],
    ["▶", "later", () => pan(0.25)],
    ["whole run", "show the whole run", () => show(0, scene.cycles)],
  ]) {
    const tool = make("button", "mla-text-button", { type: "button", title: label, "aria-label": label });
    tool.textContent = name;
    tool.addEventListener("click", act);
    tools.append(tool);
  }
  tools.append(range);

  function load() {
    const before = scene.cycles;
    scene = JSON.parse(model.get("scene"));
    canvas.style.height = `${place(scene)}px`;
    canvas.setAttribute("aria-label", model.get("title"));
    legend.replaceChildren(...scene.legend.map(entry));
    cursor = hover = null;
    say(HINT, "off");
    if (scene.cycles === before) show(low, high);
    else show(0, scene.cycles);
  }

  function entry(name) {
    const key = scene.keys[name];
    const item = make("span", "mla-key");
    const swatch = make("span", `mla-swatch${key.hatched ? " mla-hatched" : ""}${key.line ? " mla-line" : ""}`);
    swatch.style.setProperty("--key", key.colour);
    swatch.style.setProperty("--tint", key.tint);
    item.append(swatch, key.words);
    return item;
  }

  function update() {
    message.textContent = model.get("message");
    message.hidden = !model.get("message");
    frame.classList.toggle("mla-stale", Boolean(model.get("message")));
    title.textContent = model.get("title");
    summary.textContent = model.get("summary");
    twin.textContent = model.get("text");
  }

  function later() {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(() => {
      const strong = document.activeElement === canvas;
      paper.draw(scene, low, high, [hover, cursor && { ...cursor, strong }].filter(Boolean));
    });
  }

  // Where we look

  function show(from, to) {
    const span = Math.min(Math.max(to - from, 16), scene.cycles);
    low = Math.min(Math.max(from, 0), scene.cycles - span);
    high = low + span;
    range.textContent = `cycles ${count(low)} to ${count(high)}`;
    later();
  }

  function zoom(factor, around) {
    const chosen = cursor && middle(cursor) >= low && middle(cursor) <= high ? middle(cursor) : (low + high) / 2;
    const at = around ?? chosen;
    show(at - (at - low) * factor, at + (high - at) * factor);
  }

  const pan = (part) => show(low + part * (high - low), low + part * (high - low) + (high - low));
  const middle = ({ lane, bar }) => (scene.lanes[lane].start[bar] + scene.lanes[lane].stop[bar]) / 2;

  // What we read

  function say(sentence, live) {
    detail.setAttribute("aria-live", live);
    detail.textContent = sentence;
  }

  function sentence({ lane, bar }) {
    const row = scene.lanes[lane];
    const [from, to] = [row.start[bar], row.stop[bar]];
    const where = scene.ctas > 1 ? `CTA ${row.cta}, ${row.name}` : row.name;
    const link = (row.links ?? []).find(([index]) => index === bar);
    const what = link?.[4] ? "its sources seen free" : "seen";
    const seen = link ? `; ${what} by ${scene.lanes[link[1]].name} at cycle ${count(link[2])}` : "";
    return `${where}, cycles ${count(from)}–${count(to)} (${count(to - from)}): ${scene.texts[row.text[bar]]}${seen}`;
  }

  function rest() {
    hover = null;
    say(cursor ? sentence(cursor) : HINT, "off");
    later();
  }

  function select(lane, bar) {
    cursor = { lane, bar };
    const row = scene.lanes[lane];
    if (row.stop[bar] < low || row.start[bar] > high) {
      const half = (high - low) / 2;
      show(middle(cursor) - half, middle(cursor) + half);
    }
    const hidden = row.y < frame.scrollTop || row.y + row.height > frame.scrollTop + frame.clientHeight;
    if (hidden) frame.scrollTop = row.y - 40;
    say(sentence(cursor), "polite");
    later();
  }

  function sideways(step) {
    if (!cursor) return enter();
    const last = scene.lanes[cursor.lane].start.length - 1;
    return select(cursor.lane, Math.min(Math.max(cursor.bar + step, 0), last));
  }

  function lanewards(step) {
    if (!cursor) return enter();
    const at = Math.min(Math.max(middle(cursor), low), high);
    let lane = cursor.lane + step;
    while (scene.lanes[lane] && !scene.lanes[lane].start.length) lane += step;
    return scene.lanes[lane] && select(lane, nearest(lane, at));
  }

  function enter() {
    const lane = scene.lanes.findIndex((row) => row.start.length);
    if (lane >= 0) select(lane, nearest(lane, low));
  }

  function nearest(lane, at) {
    const row = scene.lanes[lane];
    let [best, least] = [0, Infinity];
    row.start.forEach((from, i) => {
      const away = Math.max(from - at, at - row.stop[i], 0);
      if (away < least) [best, least] = [i, away];
    });
    return best;
  }

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowRight: () => (event.shiftKey ? pan(0.25) : sideways(1)),
      ArrowLeft: () => (event.shiftKey ? pan(-0.25) : sideways(-1)),
      ArrowDown: () => lanewards(1),
      ArrowUp: () => lanewards(-1),
      Home: () => sideways(-Infinity),
      End: () => sideways(Infinity),
      "+": () => zoom(0.5),
      "=": () => zoom(0.5),
      "-": () => zoom(2),
      0: () => show(0, scene.cycles),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
  canvas.addEventListener("focus", () => {
    if (!cursor && canvas.matches(":focus-visible")) enter();
    later();
  });
  canvas.addEventListener("blur", later);
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, paper.time(event.offsetX));
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    drag = { px: event.offsetX, low, high, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const shift = ((drag.px - event.offsetX) / paper.width()) * (drag.high - drag.low);
      drag.moved ||= Math.abs(drag.px - event.offsetX) > 3;
      if (drag.moved) show(drag.low + shift, drag.high + shift);
      return;
    }
    const found = paper.find(event.offsetX, event.offsetY);
    if (!found) return hover && rest();
    if (found.lane === hover?.lane && found.bar === hover.bar) return;
    hover = found;
    say(sentence(hover), "polite");
    later();
  });
  canvas.addEventListener("pointerup", (event) => {
    const found = drag && !drag.moved ? paper.find(event.offsetX, event.offsetY) : null;
    drag = null;
    if (found) select(found.lane, found.bar);
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", rest);
  button.addEventListener("click", () => {
    twin.hidden = !twin.hidden;
    button.setAttribute("aria-expanded", String(!twin.hidden));
  });

  // A canvas does not repaint by itself when its size or the page's theme changes.
  const resized = new ResizeObserver(later);
  resized.observe(canvas);
  const themed = new MutationObserver(later);
  for (const root of [document.body, document.documentElement]) themed.observe(root, { attributes: true });
  model.on("change:scene", load);
  model.on("change:message change:text change:title change:summary", update);
  load();
  update();
  return () => {
    resized.disconnect();
    themed.disconnect();
    cancelAnimationFrame(pending);
  };
}

function make(tag, className, attributes = {}) {
  const element = document.createElement(tag);
  element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export default { render };
