import type { RunState } from "../api/client";

const minute = 60_000;
/** The shapes of a grid: the length of a cell, and the cells in a row. Days and hours are in the viewer's time zone. */
const shapes = [
  { unit: "seconds", cell: minute / 2, columns: 20 },
  { unit: "minutes", cell: 5 * minute, columns: 12 },
  { unit: "hours", cell: 60 * minute, columns: 24 },
  { unit: "days", cell: 24 * 60 * minute, columns: 7 },
] as const;
const rowsShown = 14;

export interface Cell {
  from: Date;
  to: Date;
  runs: number;
  failed: number;
  missed: number;
  /** The most important content, which defines the colour of the cell. */
  mark: "none" | "missed" | RunState;
}

export interface Grid {
  unit: (typeof shapes)[number]["unit"];
  rows: { at: Date; cells: Cell[] }[];
}

type GridRun = { state: RunState; at: string };
type GridMissed = { first: string; last: string; count: number };

const weight: Cell["mark"][] = [
  "none",
  "pending",
  "skipped",
  "cancelled",
  "succeeded",
  "queued",
  "running",
  "retrying",
  "missed",
  "failed",
];

/**
 * grid puts runs and missed fire times into cells. The length of a cell depends on the usual time between runs: half a minute
 * for a job that runs every second, a day for a daily job. The last row contains now.
 */
export function grid(runs: GridRun[], missed: GridMissed[], now: Date): Grid | undefined {
  const instants = runs
    .map((r) => Date.parse(r.at))
    .filter((at) => at <= now.getTime())
    .sort((a, b) => a - b);
  if (instants.length === 0 && missed.length === 0) return undefined;
  const gaps = instants
    .slice(1)
    .map((at, i) => at - (instants[i] ?? at))
    .sort((a, b) => a - b);
  const usual = gaps[Math.floor(gaps.length / 2)] ?? 60 * minute;
  const shape = shapes.find((s) => s.cell >= usual) ?? shapes[3];
  const first = Math.min(instants[0] ?? Infinity, ...missed.map((m) => Date.parse(m.last)));
  const rows: Grid["rows"] = [];
  for (
    let start = rowStart(shape.unit, now);
    rows.length < rowsShown;
    start = rowStart(shape.unit, new Date(start.getTime() - 1))
  ) {
    rows.unshift({ at: start, cells: cellsOf(shape, start) });
    if (start.getTime() <= first) break;
  }
  const cells = rows.flatMap((r) => r.cells);
  const at = (ms: number) => cells.find((c) => c.from.getTime() <= ms && ms < c.to.getTime());
  for (const r of runs) {
    const cell = at(Date.parse(r.at));
    if (!cell) continue;
    cell.runs++;
    if (r.state === "failed") cell.failed++;
    cell.mark = heavier(cell.mark, r.state);
  }
  for (const m of missed) {
    const cell = at(Date.parse(m.last));
    if (!cell) continue;
    cell.missed += m.count;
    cell.mark = heavier(cell.mark, "missed");
  }
  return { unit: shape.unit, rows };
}

const heavier = (a: Cell["mark"], b: Cell["mark"]) => (weight.indexOf(b) > weight.indexOf(a) ? b : a);

function rowStart(unit: Grid["unit"], at: Date): Date {
  const d = new Date(at);
  switch (unit) {
    case "seconds":
      d.setMinutes(d.getMinutes() - (d.getMinutes() % 10), 0, 0);
      return d;
    case "minutes":
      d.setMinutes(0, 0, 0);
      return d;
    case "hours":
      d.setHours(0, 0, 0, 0);
      return d;
    case "days":
      d.setHours(0, 0, 0, 0);
      d.setDate(d.getDate() - ((d.getDay() + 6) % 7)); // weeks begin on Monday
      return d;
  }
}

function cellsOf(shape: (typeof shapes)[number], start: Date): Cell[] {
  const edge = (i: number) => {
    const d = new Date(start);
    // Days and hours follow the local calendar, because a day does not always have 24 hours.
    if (shape.unit === "days") d.setDate(d.getDate() + i);
    else if (shape.unit === "hours") d.setHours(i);
    else d.setTime(start.getTime() + i * shape.cell);
    return d;
  };
  return Array.from({ length: shape.columns }, (_, i) => ({
    from: edge(i),
    to: edge(i + 1),
    runs: 0,
    failed: 0,
    missed: 0,
    mark: "none" as const,
  }));
}
