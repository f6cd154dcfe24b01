// Draws the last hour of one file's runs. Without it, the page still shows the present state.
"use strict";

(() => {
  const EVERY_MS = 5000;
  const HEIGHT = 190;
  const MIN_SPAN_S = 120;
  const MAX_MS = 8.64e15;
  const PHASES = [
    ["addBatch", "compute, write, commit"],
    ["latestOffset", "look for input"],
    ["queryPlanning", "plan the query"],
    ["walCommit", "log the plan"],
    ["getBatch", "open the input"],
    ["commitOffsets", "log the end"],
    ["other", "other"],
  ];
  const MARKS = { started: "accent", resumed: "accent", waiting: "warn", "slot taken": "accent", "slot left": "quiet", "took over": "accent", replayed: "warn", failed: "bad", "taken over": "bad", stopped: "quiet" };

  const place = document.getElementById("charts");
  if (!place) return;

  const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
  const exact = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
  const minute = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
  const day = new Intl.DateTimeFormat(undefined, { dateStyle: "short", timeStyle: "medium" });
  const unknown = "–";

  const count = (value) => exact.format(value);
  const perSecond = (value) => `${count(value)}/s`;
  const milliseconds = (value) => (value < 1000 ? `${exact.format(value)} ms` : `${exact.format(value / 1000)} s`);
  function duration(value) {
    const [unit, name] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([size]) => Math.abs(value) >= size) ?? [1, "s"];
    return `${exact.format(value / unit)} ${name}`;
  }
  function bytes(value) {
    const unit = value >= 1 ? Math.min(4, Math.floor(Math.log(value) / Math.log(1024))) : 0;
    return `${exact.format(value / 1024 ** unit)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
  }

  // A canvas cannot use variables of a style sheet.
  function ink(name) {
    const probe = document.body.appendChild(document.createElement("span"));
    probe.style.color = `var(--${name})`;
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  const line = (label, color, values, told, more = {}) => ({ label, color, values, told, ...more });

  const CHARTS = {
    rate: (h) => [
      line("read", "one", h.read_per_s, perSecond),
      line("written", "two", h.written_per_s, perSecond),
      line("rejected", "bad", h.rejected_per_s, perSecond),
    ],
    carried: (h) => [
      line("written", "one", h.written_per_s, perSecond),
      line("rejected", "bad", h.rejected_per_s, perSecond),
      line("dropped", "phase-3", h.dropped_per_s, perSecond),
    ],
    age: (h) => [line("oldest record", "one", h.lag_s, duration, { isFilled: true })],
    took: (h) => [line("mean", "one", h.batch_ms, milliseconds, { isFilled: true, isSparse: true })],
    tries: (h) => [line("tries that failed", "bad", h.tries_failed, count, { isFilled: true })],
    posted: (h) => [line("records", "one", h.records_per_s, perSecond, { isFilled: true })],
    posts: (h) => [
      line("taken", "one", h.posts_per_s, perSecond),
      line("refused", "phase-3", h.refused_per_s, perSecond),
      line("failed", "bad", h.failed_per_s, perSecond),
    ],
    answer: (h) => [line("mean", "one", h.answer_ms, milliseconds, { isFilled: true, isSparse: true })],
    remembered: (h) => [line("keys", "one", h.keys, count, { isFilled: true })],
    inflight: (h) => [line("waiting bodies", "one", h.in_flight_bytes, bytes, { isFilled: true })],
    lag: (h) => [line("waiting records", "one", h.lag, count, { isFilled: true })],
    batch: (h) => stacked(h.batch_ms),
    event: (h) => [
      behind("newest event", "two", h, h.newest_event_ms),
      behind("event watermark", "one", h, h.event_watermark_ms),
      line("held by", "quiet", h.watermark_holder.map(() => null), null, { texts: h.watermark_holder }),
    ],
    visible: (h) => [line("slowest batch", "one", h.visible_ms, milliseconds, { isFilled: true, isSparse: true })],
    state: (h) => [
      line("rows", "one", h.state_rows, count),
      line("memory", "two", h.state_memory_bytes, bytes, { scale: "bytes" }),
    ],
  };

  // Event time compared with the clock at the end of each interval.
  function behind(label, color, h, column) {
    const ends = h.at_ms.map((at) => at + h.interval_s * 1000);
    const values = column.map((value, i) => (value === null ? null : (ends[i] - value) / 1000));
    return line(label, color, values, duration, { dates: column });
  }

  // Each phase is stacked on those before it; the legend shows its own time.
  function stacked(phases) {
    let below = null;
    return PHASES.map(([name, label], number) => {
      const own = phases[name];
      const top = own.map((value, i) => (value === null ? null : value + (below ? below[i] : 0)));
      below = top;
      return line(label, `phase-${number + 1}`, top, milliseconds, { own, isStacked: true, isSparse: true });
    });
  }

  let drawn = {};
  let marks = [];

  function markTimes(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { at_ms, what } of marks) {
      const x = Math.round(u.valToPos(at_ms / 1000, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = u.marks[what] ?? u.marks.stopped;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const half = 4 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x - half, bbox.top);
      ctx.lineTo(x + half, bbox.top);
      ctx.lineTo(x, bbox.top + 1.6 * half);
      ctx.fill();
    }
    ctx.restore();
  }

  function axis(scale, told, colors, more = {}) {
    const grid = { stroke: colors.line, width: 1 };
    const values = (_, splits) => splits.map(told);
    return { scale, values, stroke: colors.quiet, font: "12px system-ui", grid, ticks: { show: false }, ...more };
  }

  function make(figure, lines) {
    const colors = { quiet: ink("quiet"), line: ink("line") };
    const told = lines[0].told;
    const short = told === count || told === perSecond ? (v) => compact.format(v) : told;
    const series = lines.map((each) => {
      const color = ink(each.color);
      const fill = each.isStacked ? color : each.isFilled ? color.replace("rgb(", "rgba(").replace(")", ", .18)") : undefined;
      return {
        label: each.label, stroke: color, fill, scale: each.scale ?? "y", width: each.isStacked ? 0 : 2,
        spanGaps: Boolean(each.isSparse), points: { show: false },
        value: (u, _, number, at) => legend(u.lines[number - 1], at),
      };
    });
    const scales = { x: { time: true, range: (u, min, max) => [Math.min(min, max - MIN_SPAN_S), max] } };
    const fromZero = { range: (u, min, max) => [0, max > 0 ? max * 1.1 : 1] };
    scales.y = fromZero;
    const axes = [
      axis("x", null, colors, { values: (u, splits, _, space, step) => splits.map((at) => (step < 60 ? clock : minute).format(at * 1000)), space: 90, size: 30 }),
      axis("y", short, colors, { size: 68, space: 26 }),
    ];
    if (lines.some((each) => each.scale)) {
      scales.bytes = fromZero;
      axes.push(axis("bytes", bytes, colors, { side: 1, size: 78, space: 26, grid: { show: false } }));
    }
    const bands = lines.flatMap((each, i) => (each.isStacked && i ? [{ series: [i + 1, i] }] : []));
    const chart = new uPlot({
      width: figure.clientWidth - 2, height: HEIGHT, series: [{ label: "at", value: (u, _, __, at) => moment(u, at) }, ...series],
      scales, axes, bands, hooks: { draw: [markTimes] },
      cursor: { sync: { key: "history", setSeries: false }, drag: { x: false, y: false }, y: false },
      legend: { markers: { width: 0, fill: (u, number) => (number ? series[number - 1].stroke : "transparent") } },
    }, null, figure.querySelector(".plot"));
    chart.marks = Object.fromEntries(Object.entries(MARKS).map(([what, name]) => [what, ink(name)]));
    chart.lines = lines;
    return chart;
  }

  // Without a pointer, the newest known value.
  function legend(each, at) {
    const known = each.texts ?? each.own ?? each.values;
    const shown = at ?? known.findLastIndex((value) => value !== null);
    const value = known[shown] ?? null;
    if (value === null) return unknown;
    if (each.texts) return value;
    const date = each.dates?.[shown];
    // A record may carry a timestamp out of the range of dates.
    if (date === undefined || Math.abs(date) > MAX_MS) return each.told(value);
    return `${each.told(value)} behind (${day.format(date)})`;
  }

  function moment(u, at) {
    const value = at === null || at === undefined ? u.data[0].at(-1) : u.data[0][at];
    return value ? clock.format(value * 1000) : unknown;
  }

  function draw(history) {
    marks = history.marks;
    place.classList.toggle("empty", history.at_ms.length === 0);
    if (!history.at_ms.length) return;
    const times = history.at_ms.map((at) => at / 1000);
    for (const figure of place.querySelectorAll("[data-chart]")) {
      const name = figure.dataset.chart;
      const lines = CHARTS[name](history);
      drawn[name] ??= make(figure, lines);
      drawn[name].lines = lines;
      drawn[name].setData([times, ...lines.map((each) => each.values)]);
      const now = lines.map((each) => `${each.label} ${legend(each)}`).join(", ");
      figure.querySelector(".plot").setAttribute("aria-label", `${figure.dataset.title}: ${now}`);
    }
  }

  // Left and right move through time, in all charts at once.
  function walk(event) {
    const chart = drawn[event.target.closest("[data-chart]")?.dataset.chart];
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!chart || !step) return;
    event.preventDefault();
    const newest = chart.data[0].length - 1;
    const at = Math.max(0, Math.min(newest, (chart.cursor.idx ?? newest) + step));
    chart.setCursor({ left: chart.valToPos(chart.data[0][at], "x"), top: 1 }, true, true);
    const told = chart.lines.map((each) => `${each.label} ${legend(each, at)}`).join(", ");
    document.getElementById("said").textContent = `${moment(chart, at)}: ${told}`;
  }

  let newest = null;

  async function look() {
    try {
      const answer = await fetch(place.dataset.where);
      if (answer.ok) draw((newest = await answer.json()));
    } catch {
      // The page itself shows that the service does not answer.
    }
  }

  function redraw() {
    for (const chart of Object.values(drawn)) chart.destroy();
    drawn = {};
    if (newest) draw(newest);
  }

  async function keepLooking() {
    if (!document.hidden) await look();
    setTimeout(keepLooking, EVERY_MS);
  }

  place.addEventListener("keydown", walk);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  new ResizeObserver(() => {
    for (const [name, chart] of Object.entries(drawn)) {
      const width = place.querySelector(`[data-chart=${name}]`).clientWidth - 2;
      if (width !== chart.width) chart.setSize({ width, height: HEIGHT });
    }
  }).observe(place);
  keepLooking();
})();
