import type { Run, Schemas } from "../api/client";

/** RunRow is a row of a job's list: a run, or fire times that were missed. */
export type RunRow = { run: Run; missed?: undefined } | { run?: undefined; missed: Schemas["Missed"] };

const runAt = (r: Run) => Date.parse(r.fire_time ?? r.created_at);

/**
 * withMissed puts missed fire times between runs, newest first. Runs keep their order. If complete is false, the list has more runs, and entries that are
 * older than its last one are left out.
 */
export function withMissed(runs: Run[], missed: Schemas["Missed"][], complete: boolean): RunRow[] {
  const left = [...missed].sort((a, b) => Date.parse(b.last) - Date.parse(a.last));
  const rows: RunRow[] = [];
  for (const run of runs) {
    while (left[0] && Date.parse(left[0].last) > runAt(run)) rows.push({ missed: left.shift() as Schemas["Missed"] });
    rows.push({ run });
  }
  return complete ? [...rows, ...left.map((missed) => ({ missed }))] : rows;
}
