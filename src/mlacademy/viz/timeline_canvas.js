// The canvas of a timeline: where lanes and cycles stand, and how they are painted. timeline.js follows this text.

const LABELS = 150;
const LEFT = 5;
const RIGHT = 8;
const AXIS = 24;
const ROW = { warps: 14, operations: 9, barriers: 28, buffers: 8 };
const PHASE = 11;
const GAP = 5;
const HEADING = 17;
const MOST_LINKS = 400;
const FONT = "system-ui, sans-serif";

const count = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });

// Give each lane of a scene its place; return the height of all.
function place(scene) {
  let y = AXIS;
  let previous = "";
  for (const lane of scene.lanes) {
    const section = `${lane.cta} ${lane.section}`;
    lane.heading = section === previous ? "" : lane.section;
    if (lane.heading) y += HEADING;
    if (lane.heading && scene.ctas > 1 && lane.section === "warps") lane.heading = `CTA ${lane.cta}: warps`;
    previous = section;
    lane.y = y;
    lane.height = ROW[lane.section] * lane.levels;
    y += lane.height + GAP;
  }
  return y + 6;
}

// Paints `scene` for the cycles from `low` to `high`; `marks` are the bars ({ lane, bar }) to frame.
function painter(canvas) {
  const context = canvas.getContext("2d");
  let [scene, low, high, ink] = [null, 0, 1, "black"];

  const width = () => canvas.clientWidth - LABELS - RIGHT;
  const x = (time) => LABELS + ((time - low) / (high - low)) * width();

  function draw(next, from, to, marks) {
    [scene, low, high, ink] = [next, from, to, getComputedStyle(canvas).color];
    if (!canvas.clientWidth) return;
    const ratio = window.devicePixelRatio || 1;
    const [w, h] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = Math.round(w * ratio);
    canvas.height = Math.round(h * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    axis(h);
    scene.lanes.forEach(row);
    clip(() => links(marks));
    if (scene.died && scene.cycles >= low && scene.cycles <= high) death(h);
    marks.forEach(ring);
  }

  function clip(run) {
    context.save();
    context.beginPath();
    context.rect(LABELS - 1, 0, width() + 2, canvas.clientHeight);
    context.clip();
    run();
    context.restore();
  }

  function axis(h) {
    const step = tick((high - low) / 8);
    for (let t = Math.ceil(low / step) * step; t <= high; t += step) {
      paint(ink, 0.13, () => context.fillRect(x(t), AXIS - 6, 1, h - AXIS));
      const end = x(t) > canvas.clientWidth - 30;
      write(count(t), end ? canvas.clientWidth - 3 : x(t), 14, { alpha: 0.72, align: end ? "right" : "center" });
    }
    write("cycle", LEFT, 14, { alpha: 0.72 });
  }

  function row(lane) {
    if (lane.heading) {
      const bold = lane.heading.startsWith("CTA");
      write(lane.heading, LEFT, lane.y - 4, { alpha: bold ? 1 : 0.72, bold });
    }
    const name = lane.name.length > 22 ? `${lane.name.slice(0, 21)}…` : lane.name;
    write(name, LABELS - 8, lane.y + lane.height / 2 + 4, { align: "right" });
    clip(() => {
      bars(lane);
      if (lane.steps) steps(lane);
    });
  }

  // Bars narrower than a pixel share it: its column is divided as they divide the time.
  function bars(lane) {
    const piles = [];
    const flush = (level) => {
      if (piles[level]) column(lane, level, piles[level]);
      piles[level] = null;
    };
    for (let i = 0; i < lane.start.length && lane.start[i] <= high; i++) {
      if (lane.stop[i] < low) continue;
      const [left, right, level] = [x(lane.start[i]), x(lane.stop[i]), lane.level[i]];
      if (right - left >= 1) {
        flush(level);
        fill(lane, left, Math.max(right - left - 0.4, 0.8), level, lane.key[i]);
        if (lane.section === "barriers") phase(lane, i, left, right);
        continue;
      }
      if (piles[level]?.px !== Math.floor(left)) {
        flush(level);
        piles[level] = { px: Math.floor(left), spent: new Map() };
      }
      const { spent } = piles[level];
      spent.set(lane.key[i], (spent.get(lane.key[i]) ?? 0) + lane.stop[i] - lane.start[i]);
    }
    piles.forEach((_, level) => flush(level));
  }

  function column(lane, level, { px, spent }) {
    const parts = [...spent].sort((a, b) => b[1] - a[1]);
    const whole = parts.reduce((sum, [, cycles]) => sum + cycles, 0) || 1;
    let done = 0;
    for (const [key, cycles] of parts) {
      const share = cycles / whole || 1;
      fill(lane, px, 1, level, key, done, share);
      done += share;
    }
  }

  // `from` and `share` cut the bar's height: a column of many bars is drawn in parts.
  function fill(lane, left, wide, level, key, from = 0, share = 1) {
    const look = scene.keys[scene.names[key]];
    const whole = lane.section === "barriers" ? PHASE : ROW[lane.section] - (lane.section === "warps" ? 0 : 1);
    const top = lane.y + level * ROW[lane.section] + from * whole;
    const thick = share * whole;
    const colour = look.colour === "currentColor" ? ink : look.colour;
    if (!look.hatched) return paint(colour, look.tint, () => context.fillRect(left, top, wide, thick));
    paint(ink, wide < 4 ? 0.3 : 0.08, () => context.fillRect(left, top, wide, thick));
    if (wide >= 4) hatch(left, top, wide, thick);
  }

  function hatch(left, top, wide, thick) {
    context.save();
    context.beginPath();
    context.rect(left, top, wide, thick);
    context.clip();
    context.strokeStyle = ink;
    context.globalAlpha = 0.4;
    context.beginPath();
    const [from, to] = [Math.max(left, LABELS), Math.min(left + wide, canvas.clientWidth)];
    for (let at = Math.floor((from - thick) / 5) * 5; at < to; at += 5) {
      context.moveTo(at, top + thick);
      context.lineTo(at + thick, top);
    }
    context.stroke();
    context.strokeRect(left, top, wide, thick);
    context.restore();
  }

  function phase(lane, i, left, right) {
    const words = scene.texts[lane.text[i]].split(" (")[0].split(", ").pop();
    const [from, to] = [Math.max(left, LABELS), Math.min(right, canvas.clientWidth)];
    if (to - from > 6 * words.length) write(words, (from + to) / 2, lane.y + 9, { align: "center", size: 9 });
  }

  // Arrivals due as a line, bytes owed as an area; one point a pixel is enough.
  function steps(lane) {
    const base = lane.y + lane.height - 1;
    paint(ink, 0.25, () => context.fillRect(LABELS, base, width(), 1));
    for (const name of ["owed", "pending"]) {
      const [values, times, look] = [lane.steps[name], lane.steps.time, scene.keys[name]];
      const most = values.reduce((a, b) => Math.max(a, Math.abs(b)), 1);
      const edge = (time) => Math.min(Math.max(x(time), LABELS - 2), canvas.clientWidth + 2);
      const points = [];
      values.forEach((value, i) => {
        const last = i + 1 === values.length;
        const [from, to] = [edge(times[i]), edge(last ? scene.cycles : times[i + 1])];
        if (to <= LABELS - 2 || from > canvas.clientWidth || (to - (points.at(-1)?.[0] ?? -1) < 1 && !last)) return;
        const y = base - (Math.max(value, 0) / most) * 14;
        points.push([from, y], [to, y]);
      });
      if (!points.length) continue;
      if (!look.line) points.push([points.at(-1)[0], base], [points[0][0], base]);
      context.beginPath();
      points.forEach(([px, y]) => context.lineTo(px, y));
      if (!look.line) {
        paint(look.colour, look.tint, () => context.fill());
        continue;
      }
      context.strokeStyle = look.colour;
      context.lineWidth = 1.3;
      context.stroke();
      context.lineWidth = 1;
    }
  }

  // One wait may see many operations of a lane: the link leads from the one that came last, and from the chosen one.
  function links(marks) {
    const shown = new Map();
    scene.lanes.forEach((lane, number) => {
      for (const [bar, to, when, since] of lane.links ?? []) {
        if (since < low || since > high) continue;
        const chosen = marks.some((mark) => mark.lane === number && mark.bar === bar);
        const key = chosen ? "chosen" : `${number} ${to} ${when}`;
        if (!(shown.get(key)?.since > since)) shown.set(key, { lane, bar, to: scene.lanes[to], when, since, chosen });
      }
    });
    for (const { lane, bar, to, when, since, chosen } of shown.values()) {
      if (shown.size > MOST_LINKS && !chosen) continue;
      const y = lane.y + lane.level[bar] * ROW.operations + 4;
      context.strokeStyle = context.fillStyle = ink;
      context.globalAlpha = chosen ? 1 : 0.4;
      context.lineWidth = chosen ? 2 : 0.8;
      context.beginPath();
      context.moveTo(x(since), y);
      context.lineTo(x(when), to.y + to.height);
      context.stroke();
      context.beginPath();
      context.arc(x(when), to.y + to.height, chosen ? 3 : 2, 0, 7);
      context.fill();
    }
    context.globalAlpha = context.lineWidth = 1;
  }

  function death(h) {
    const [at, colour] = [x(scene.cycles), scene.keys.sync.colour];
    paint(colour, 1, () => context.fillRect(at - 2, AXIS - 6, 3, h));
    write(`✕ ${scene.died}`, at - 6, AXIS + 6, { colour, align: "right", bold: true });
  }

  function ring({ lane, bar, strong }) {
    const row = scene.lanes[lane];
    const thick = row.section === "barriers" ? PHASE : ROW[row.section];
    const left = Math.max(x(row.start[bar]), LABELS - 1);
    const wide = Math.max(Math.min(x(row.stop[bar]), canvas.clientWidth) - left, 2);
    context.strokeStyle = ink;
    context.lineWidth = strong ? 2.5 : 1.5;
    context.strokeRect(left - 2, row.y + row.level[bar] * ROW[row.section] - 2, wide + 4, thick + 4);
    context.lineWidth = 1;
  }

  function paint(colour, alpha, run) {
    context.fillStyle = colour;
    context.globalAlpha = alpha;
    run();
    context.globalAlpha = 1;
  }

  function write(text, px, y, { colour = ink, alpha = 1, align = "left", bold = false, size = 11 } = {}) {
    context.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    context.textAlign = align;
    paint(colour, alpha, () => context.fillText(text, px, y));
  }

  // The bar at a pixel, or within 4 pixels of it; bars of other levels of the lane do not count.
  function find(px, py) {
    const lane = scene.lanes.findIndex((row) => py >= row.y - 2 && py < row.y + row.height + 2);
    if (lane < 0 || px < LABELS) return null;
    const row = scene.lanes[lane];
    const level = row.section === "barriers" ? 0 : Math.max(Math.min(Math.floor((py - row.y) / ROW[row.section]), row.levels - 1), 0);
    let [best, least] = [null, 4];
    for (let i = 0; i < row.start.length; i++) {
      if (row.level[i] !== level || row.stop[i] < low || row.start[i] > high) continue;
      const away = Math.max(x(row.start[i]) - px, px - x(row.stop[i]), 0);
      if (away < least) [best, least] = [i, away];
      if (!away) break;
    }
    return best === null ? null : { lane, bar: best };
  }

  return { draw, find, width, time: (px) => low + ((px - LABELS) / width()) * (high - low) };
}

function tick(least) {
  for (let power = 1; ; power *= 10) {
    for (const digit of [1, 2, 5]) if (digit * power >= least) return digit * power;
  }
}
