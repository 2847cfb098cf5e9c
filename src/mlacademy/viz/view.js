// Shows a picture's SVG and makes it readable without a mouse: every element with a sentence in `data-detail` can be
// pointed at, or reached with Tab and the arrow keys; its sentence stands in the line below.

const HINT = "Point at a part to read what it is. By keyboard: Tab into the picture, then the arrow keys.";
const NS = "http://www.w3.org/2000/svg";

function render({ model, el }) {
  el.classList.add("mla-view");
  const drawing = make("div", "mla-drawing");
  const message = make("div", "mla-message", { role: "alert" });
  const detail = make("div", "mla-detail", { "aria-live": "polite" });
  const spoken = make("div", "mla-spoken", { "aria-live": "polite" });
  const button = make("button", "mla-text-button", { type: "button", "aria-expanded": "false" });
  const twin = make("pre", "mla-text", { tabindex: "0" });
  button.textContent = "Text version";
  twin.hidden = true;
  const bar = make("div", "mla-bar");
  bar.append(detail, button);
  el.append(message, drawing, bar, twin, spoken);

  let parts = [];
  let current = 0;
  let ring = null;
  let timer = 0;

  function draw() {
    const focused = drawing.contains(document.activeElement);
    drawing.innerHTML = model.get("svg");
    const svg = drawing.querySelector("svg");
    if (!svg) return;
    // As a title element the name would pop up as a tooltip over the whole picture.
    svg.querySelector("title")?.remove();
    svg.removeAttribute("aria-labelledby");
    svg.setAttribute("aria-label", model.get("title"));
    svg.setAttribute("role", "group");
    ring = document.createElementNS(NS, "rect");
    ring.setAttribute("class", "mla-ring");
    ring.setAttribute("visibility", "hidden");
    svg.append(ring);
    parts = [...svg.querySelectorAll("[data-detail]")];
    current = Math.min(current, Math.max(parts.length - 1, 0));
    parts.forEach((part, index) => {
      part.setAttribute("role", "img");
      part.setAttribute("aria-label", part.dataset.detail);
      part.setAttribute("tabindex", index === current ? "0" : "-1");
    });
    say(HINT, "off");
    if (focused && parts.length) parts[current].focus({ preventScroll: true });
    clearTimeout(timer);
    timer = setTimeout(() => {
      spoken.textContent = svg.querySelector("desc")?.textContent ?? "";
      nameSliders(el.closest(".widget-vbox"));
    }, 600);
  }

  function say(sentence, live) {
    detail.setAttribute("aria-live", live);
    detail.textContent = sentence;
  }

  function mark(part) {
    const box = part.getBBox();
    for (const [name, value] of Object.entries({
      x: box.x - 2, y: box.y - 2, width: box.width + 4, height: box.height + 4, visibility: "visible",
    })) ring.setAttribute(name, value);
  }

  function show(part, live) {
    mark(part);
    say(part.dataset.detail, live);
  }

  function rest() {
    const active = parts.indexOf(document.activeElement);
    if (active >= 0) show(parts[active], "off");
    else {
      ring?.setAttribute("visibility", "hidden");
      say(HINT, "off");
    }
  }

  // The nearest part that lies wholly above (sign -1) or below (1); sideways distance counts double.
  function vertical(sign) {
    const from = parts[current].getBoundingClientRect();
    let best = current;
    let least = Infinity;
    parts.forEach((part, index) => {
      const to = part.getBoundingClientRect();
      const gap = sign > 0 ? to.top - from.bottom : from.top - to.bottom;
      if (gap < -2 || index === current) return;
      const aside = Math.max(to.left - from.right, from.left - to.right, 0);
      const off = Math.abs(to.left + to.width / 2 - from.left - from.width / 2);
      const distance = gap + 2 * aside + 0.01 * off;
      if (distance < least) [best, least] = [index, distance];
    });
    return best;
  }

  function move(index) {
    parts[current].setAttribute("tabindex", "-1");
    current = index;
    parts[current].setAttribute("tabindex", "0");
    parts[current].focus({ preventScroll: true });
  }

  drawing.addEventListener("keydown", (event) => {
    if (!parts.length) return;
    const last = parts.length - 1;
    const target = {
      ArrowRight: () => Math.min(current + 1, last),
      ArrowLeft: () => Math.max(current - 1, 0),
      ArrowDown: () => vertical(1),
      ArrowUp: () => vertical(-1),
      Home: () => 0,
      End: () => last,
    }[event.key];
    if (!target) return;
    event.preventDefault();
    event.stopPropagation();
    move(target());
  });
  drawing.addEventListener("focusin", (event) => {
    const index = parts.indexOf(event.target);
    if (index < 0) return;
    parts[current].setAttribute("tabindex", "-1");
    current = index;
    parts[current].setAttribute("tabindex", "0");
    show(parts[index], "off");
  });
  drawing.addEventListener("focusout", () => setTimeout(rest));
  drawing.addEventListener("pointerover", (event) => {
    const part = event.target.closest?.("[data-detail]");
    if (part && drawing.contains(part)) show(part, "polite");
    else rest();
  });
  drawing.addEventListener("pointerleave", rest);
  button.addEventListener("click", () => {
    twin.hidden = !twin.hidden;
    button.setAttribute("aria-expanded", String(!twin.hidden));
  });

  function update() {
    message.textContent = model.get("message");
    message.hidden = !model.get("message");
    drawing.classList.toggle("mla-stale", Boolean(model.get("message")));
    twin.textContent = model.get("text");
  }

  model.on("change:svg", draw);
  model.on("change:message change:text", update);
  draw();
  update();
  return () => clearTimeout(timer);
}

// ipywidgets leaves a slider's handle without a name, and a slider over listed values announces positions.
function nameSliders(box) {
  for (const slider of box?.querySelectorAll(".widget-slider") ?? []) {
    const label = slider.querySelector(".widget-label")?.textContent;
    const readout = slider.querySelector(".widget-readout");
    const handle = slider.querySelector(".noUi-handle");
    if (!label || !handle) continue;
    handle.setAttribute("aria-label", label);
    if (!readout) continue;
    handle.setAttribute("aria-valuetext", readout.textContent);
    readout.setAttribute("role", "textbox");
    readout.setAttribute("aria-label", label);
  }
}

function make(tag, className, attributes = {}) {
  const element = document.createElement(tag);
  element.className = className;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

export default { render };
