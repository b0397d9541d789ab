"use strict";
// The zoomable time-line. Data: the element #timeline-data. Times are ns since the window began; charts show ms.
(() => {
  const root = document.documentElement;
  root.classList.add("has-script");
  const find = (selector) => document.querySelector(selector);
  const status = find("#status");
  const announce = (text) => { status.textContent = text; };
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
  const goTo = (element) => element.scrollIntoView({ behavior: calm() ? "auto" : "smooth", block: "start" });

  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.addEventListener("click", async () => {
      const code = document.getElementById(button.dataset.copies);
      try {
        await navigator.clipboard.writeText(code.textContent);
        announce("Copied: " + code.textContent);
      } catch {
        getSelection().selectAllChildren(code);
        announce("The setting is selected; copy it with Ctrl+C");
      }
    });
  }

  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const heading = button.closest("th"), body = heading.closest("table").tBodies[0];
      const column = heading.cellIndex, falls = heading.getAttribute("aria-sort") !== "descending";
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const order = (a, b) => heading.classList.contains("number") ? key(a) - key(b) : key(a).localeCompare(key(b));
      const rows = [...body.rows].sort((a, b) => (falls ? -1 : 1) * order(a, b));
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", falls ? "descending" : "ascending");
      body.append(...rows);
    });
  }

  const source = find("#timeline-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const lanes = find("#lanes"), readout = find("#readout");
  const whole = [0, data.length / 1e6];
  const leastWidth = 2e-4; // 200 ns: shorter than any kernel
  let colours = {};
  const readColours = () => {
    const style = getComputedStyle(root);
    colours = Object.fromEntries(["page", "text", "faint", "line", "mark", "mark-fill", "kind-0", "kind-1", "kind-2", "on-kind"]
      .map((name) => [name, style.getPropertyValue("--" + name).trim()]));
  };
  readColours();

  const written = (ms) => {
    const size = Math.abs(ms);
    const [value, unit] = size >= 1000 ? [ms / 1000, "s"] : size >= 1 || ms === 0 ? [ms, "ms"] : size >= 1e-3 ? [ms * 1e3, "µs"] : [ms * 1e6, "ns"];
    return value.toPrecision(4).replace(/\.?0+$/, "") + " " + unit;
  };
  const ticks = (chart, values) => {
    const step = values.length > 1 ? values[1] - values[0] : 1, wide = values[values.length - 1] ?? 0;
    const [scale, unit] = wide >= 1000 && step >= 1 ? [1e-3, "s"] : step >= 0.1 ? [1, "ms"] : [1e3, "µs"];
    const isWhole = (digits) => Math.abs(step * scale * 10 ** digits - Math.round(step * scale * 10 ** digits)) < 1e-6;
    const digits = [0, 1, 2, 3, 4, 5].find(isWhole) ?? 6;
    return values.map((value) => (value * scale).toFixed(digits) + " " + unit);
  };

  // --- drawing
  const charts = [];
  const pixelsOf = (chart, start, end) => {
    const low = chart.valToPos(start / 1e6, "x", true), high = chart.valToPos(end / 1e6, "x", true);
    return [Math.max(low, chart.bbox.left), Math.min(high, chart.bbox.left + chart.bbox.width)];
  };
  const clipped = (chart, draw) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw(ctx, bbox, devicePixelRatio);
    ctx.restore();
  };
  const visibleCloseUps = (chart) => {
    const { min, max } = chart.scales.x;
    const points = chart.bbox.width / devicePixelRatio / (max - min) / 1e6; // a ns
    return data.closeUps.filter((one) => one.start / 1e6 < max && one.end / 1e6 > min
      && (one.end - one.start) * points > 1.5 * one.spans.length); // single pieces can be told apart
  };
  const clearCloseUps = (chart) => clipped(chart, (ctx, box) => { // bins give way to single kernels and calls
    for (const closeUp of visibleCloseUps(chart)) {
      const [left, right] = pixelsOf(chart, closeUp.start, closeUp.end);
      ctx.fillStyle = colours.page;
      ctx.fillRect(left, box.top, right - left, box.height);
      ctx.strokeStyle = colours.faint;
      ctx.strokeRect(left, box.top, right - left, box.height);
    }
  });
  const drawSpans = (track) => (chart) => clipped(chart, (ctx, box, ratio) => {
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    for (const closeUp of visibleCloseUps(chart)) {
      const [left, right] = pixelsOf(chart, closeUp.start, closeUp.end);
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, box.top, right - left, box.height);
      ctx.clip();
      for (const [row, kind, start, length, name] of closeUp.spans) {
        if (row !== track) continue;
        const [from, until] = pixelsOf(chart, start, start + length);
        if (until < from) continue;
        const width = Math.max(until - from, ratio), top = box.top + 4 * ratio, height = box.height - 8 * ratio;
        ctx.fillStyle = colours["kind-" + kind];
        ctx.fillRect(from, top, width, height);
        if (width < 34 * ratio) continue;
        ctx.strokeStyle = colours.page;
        ctx.strokeRect(from, top, width, height);
        ctx.save();
        ctx.beginPath();
        ctx.rect(from, top, width - 3 * ratio, height);
        ctx.clip();
        ctx.fillStyle = colours["on-kind"];
        ctx.font = `${12 * ratio}px system-ui, sans-serif`;
        ctx.fillText(data.names[name], from + 4 * ratio, top + height / 2);
        ctx.restore();
      }
      ctx.restore();
    }
  });
  const drawMarks = (isNumbered) => (chart) => clipped(chart, (ctx, box, ratio) => {
    for (const mark of data.marks) {
      let [left, right] = pixelsOf(chart, mark.start, mark.end);
      if (right < box.left || left > box.left + box.width || right < left) continue;
      right = Math.max(right, left + 3 * ratio);
      ctx.fillStyle = colours["mark-fill"];
      ctx.fillRect(left, box.top, right - left, box.height);
      ctx.fillStyle = colours.mark;
      ctx.fillRect(left, box.top, 2 * ratio, box.height);
      if (!isNumbered) continue;
      ctx.fillRect(left, box.top, right - left, 3 * ratio);
      ctx.fillStyle = colours.text;
      ctx.font = `bold ${12 * ratio}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      const text = String(mark.finding), flip = left + 16 * ratio > box.left + box.width;
      ctx.textAlign = flip ? "right" : "left";
      ctx.fillText(text, flip ? left - 3 * ratio : left + 5 * ratio, box.top + box.height / 2 + 2 * ratio);
    }
  });

  const drawSteps = (chart) => clipped(chart, (ctx, box, ratio) => {
    ctx.font = `${12 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    data.steps.forEach(([start, length], step) => {
      const [left, right] = pixelsOf(chart, start, start + length);
      if (right <= left) return;
      ctx.fillStyle = colours.line;
      ctx.globalAlpha = step % 2 ? 0.5 : 1;
      ctx.fillRect(left, box.top, right - left, box.height);
      ctx.globalAlpha = 1;
      ctx.fillStyle = colours.text;
      if (right - left > 52 * ratio) ctx.fillText(`step ${step + 1}`, left + 5 * ratio, box.top + box.height / 2);
    });
  });

  // --- one range for all charts
  let range = whole.slice(), isSpreading = false;
  const show = (low, high) => {
    const width = Math.min(Math.max(high - low, leastWidth), whole[1]);
    const start = Math.min(Math.max(low, 0), whole[1] - width);
    range = [start, start + width];
    isSpreading = true;
    for (const chart of charts) chart.setScale("x", { min: range[0], max: range[1] });
    isSpreading = false;
    lanes.dataset.from = Math.round(range[0] * 1e6);
    lanes.dataset.until = Math.round(range[1] * 1e6);
    find("#shown").textContent = `Shown: ${written(range[0])} to ${written(range[1])}`;
  };
  const zoom = (factor, middle = (range[0] + range[1]) / 2) =>
    show(middle - (middle - range[0]) * factor, middle + (range[1] - middle) * factor);
  const pan = (share) => { const step = (range[1] - range[0]) * share; show(range[0] + step, range[1] + step); };

  const hover = (track) => (chart) => {
    const { left, idx } = chart.cursor;
    if (left === null || left < 0) return;
    const at = chart.posToVal(left, "x") * 1e6;
    const close = visibleCloseUps(chart).find((one) => one.start <= at && at < one.end);
    const inside = close?.spans.filter(([row, , start, length]) => row === track && start <= at && at < start + length);
    const label = data.tracks[track].label;
    if (close) {
      const span = inside[inside.length - 1];
      readout.textContent = span ? `${label}, ${written(at / 1e6)}: ${data.names[span[4]]}, ${written(span[3] / 1e6)}` : `${label}, ${written(at / 1e6)}: nothing runs`;
    } else if (idx !== null && idx !== undefined) {
      const bin = Math.min(idx, data.bins - 1);
      const parts = data.tracks[track].kinds.map((kind, place) => `${kind} ${data.tracks[track].shares[place][bin]} %`);
      readout.textContent = `${label}, ${written(at / 1e6)}: ${parts.join(", ")}`;
    }
  };

  const times = Array.from({ length: data.bins + 1 }, (_, bin) => whole[1] * bin / data.bins);
  const rowHeight = data.tracks.length > 4 ? 52 : 72;
  const common = (hooks, isBottom) => ({
    width: Math.max(lanes.clientWidth, 120), height: rowHeight + (isBottom ? 28 : 0), padding: [2, 22, isBottom ? 0 : 2, 22],
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: true }, sync: { key: "lanes", scales: ["x", null] } },
    scales: { x: { time: false }, y: { range: [0, 100] } },
    axes: [
      { show: isBottom, size: 28, stroke: () => colours.text, values: ticks, space: 90, font: "12px system-ui, sans-serif",
        grid: { stroke: () => colours.line, width: 1 }, ticks: { stroke: () => colours.line, width: 1 } },
      { show: false },
    ],
    hooks: {
      ...hooks,
      setScale: [(chart, key) => {
        if (key !== "x" || isSpreading || !charts.includes(chart)) return;
        const { min, max } = chart.scales.x;
        if (min !== null && (min !== range[0] || max !== range[1])) queueMicrotask(() => show(min, max));
      }],
    },
  });
  const stacked = (track) => { // the sum of all kinds is drawn first, the first kind last and on top
    const sums = [];
    for (const shares of track.shares) {
      const below = sums[sums.length - 1];
      sums.push([...shares.map((share, bin) => Math.min(100, share + (below ? below[bin] : 0))), 0]);
    }
    return sums;
  };
  const laneFor = (caption, label) => {
    const figure = document.createElement("figure"), words = document.createElement("figcaption"), box = document.createElement("div");
    figure.className = "lane";
    words.textContent = caption;
    box.className = "lane-chart";
    box.setAttribute("role", "img");
    box.setAttribute("aria-label", label);
    figure.append(words, box);
    lanes.append(figure);
    return box;
  };
  const percent = (share) => (share * 100).toFixed(1) + " %";

  const emptyChart = (draw, box) => new uPlot({ ...common({ draw: [draw] }, false), height: 30, series: [{}, { show: false }] },
    [times, times.map(() => 0)], box);
  if (data.marks.length) {
    const box = laneFor("Evidence, by number of the finding", `${data.marks.length} places of evidence; the findings below jump to each`);
    charts.push(emptyChart(drawMarks(true), box));
    box.addEventListener("click", (event) => {
      const chart = charts[0], at = chart.posToVal(event.clientX - chart.over.getBoundingClientRect().left, "x") * 1e6;
      const slack = (range[1] - range[0]) * 1e6 / 100;
      const mark = data.marks.find((one) => one.start - slack <= at && at <= one.end + slack);
      const finding = mark && document.getElementById("finding-" + mark.finding);
      if (finding) { goTo(finding); finding.querySelector("h3").focus({ preventScroll: true }); }
    });
  }
  if (data.steps.length) charts.push(emptyChart(drawSteps, laneFor("Steps", `${data.steps.length} steps`)));
  data.tracks.forEach((track, index) => {
    const box = laneFor(`${track.label}: busy ${percent(track.busy)} of the window`, `${track.label}, busy ${percent(track.busy)} of the window`);
    const isBottom = index === data.tracks.length - 1;
    const series = track.kinds.map((_, kind) => ({
      fill: () => colours["kind-" + kind], stroke: () => colours["kind-" + kind], width: 0,
      paths: uPlot.paths.stepped({ align: 1 }), points: { show: false },
    })).reverse();
    charts.push(new uPlot({ ...common({ draw: [clearCloseUps, drawMarks(false), drawSpans(index)], setCursor: [hover(index)] }, isBottom), series: [{}, ...series] },
      [times, ...stacked(track).reverse()], box));
  });

  // --- controls
  const actions = {
    "zoom-in": () => zoom(0.5), "zoom-out": () => zoom(2), earlier: () => pan(-0.4), later: () => pan(0.4), whole: () => show(...whole),
  };
  for (const [name, action] of Object.entries(actions))
    find(`#${name}`).addEventListener("click", () => { action(); announce(find("#shown").textContent); });
  const keys = { "+": "zoom-in", "=": "zoom-in", "-": "zoom-out", ArrowLeft: "earlier", ArrowRight: "later", 0: "whole", Home: "whole" };
  lanes.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[keys[event.key]]();
    announce(find("#shown").textContent);
  });
  lanes.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // a plain wheel scrolls the page
    event.preventDefault();
    const box = charts[0].over.getBoundingClientRect();
    const at = range[0] + (range[1] - range[0]) * Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
    zoom((event.deltaY || event.deltaX) > 0 ? 1.25 : 0.8, at);
  }, { passive: false });
  lanes.addEventListener("dblclick", () => show(...whole));
  for (const button of document.querySelectorAll("button[data-start]")) {
    button.addEventListener("click", () => {
      const start = button.dataset.start / 1e6, end = Math.max(button.dataset.end / 1e6, start);
      const margin = Math.max((end - start) * 0.5, whole[1] / 2000, leastWidth);
      show(start - margin, end + margin);
      goTo(find("#timeline"));
      lanes.focus({ preventScroll: true });
      announce(`${button.dataset.name}. ${find("#shown").textContent}`);
    });
  }
  const redraw = () => { readColours(); for (const chart of charts) chart.redraw(false, true); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => {
    for (const chart of charts) chart.setSize({ width: Math.max(lanes.clientWidth, 120), height: chart.height });
  }).observe(lanes);
  show(...whole);
})();
