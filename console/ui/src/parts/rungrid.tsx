import { useMemo } from "react";
import { Link } from "wouter";
import type { Run, Schemas } from "../api/client";
import { useT } from "../i18n";
import { grid } from "../lib/grid";
import { dateTime, shortDuration } from "../lib/time";
import { State } from "./basics";

/** RunGrid shows when a job ran and with which outcome. The length of a row depends on how often the job runs. The key of a cell is its place. */
export function RunGrid({
  job,
  runs,
  missed,
  now,
}: {
  job: number;
  runs: Run[];
  missed: Schemas["Missed"][];
  now: Date;
}) {
  const t = useT();
  const minute = Math.floor(now.getTime() / 30_000);
  const g = useMemo(
    () =>
      grid(
        runs.map((r) => ({ state: r.state, at: r.due_at ?? r.created_at })),
        missed,
        new Date(minute * 30_000 + 29_999),
      ),
    [runs, missed, minute],
  );
  if (!g) return null;
  const row = (at: Date) =>
    g.unit === "seconds" || g.unit === "minutes" ? dateTime(at).slice(5, 16) : dateTime(at).slice(5, 10);
  const column = (i: number) => {
    if (g.unit === "days") return t(`day.${(i + 1) % 7}` as "day.0");
    if (g.unit === "hours") return i % 3 === 0 ? String(i).padStart(2, "0") : "";
    if (g.unit === "minutes") return i % 3 === 0 ? `:${String(i * 5).padStart(2, "0")}` : "";
    return i % 4 === 0 ? `+${i / 2}m` : "";
  };
  return (
    <div className="table-box" tabIndex={0} role="group" aria-label={t("grid.title")}>
      <table className="run-grid">
        <thead>
          <tr>
            <td />
            {g.rows[0]?.cells.map((_, i) => (
              <th key={i} scope="col">
                {column(i)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {g.rows.map((r, n) => (
            <tr key={n}>
              <th scope="row" className="num">
                {row(r.at)}
              </th>
              {r.cells.map((c, i) => {
                const says = `${dateTime(c.from)}: ${[t("grid.runs", { n: c.runs }), c.failed ? t("grid.failed", { n: c.failed }) : "", c.missed ? t("grid.missed", { n: c.missed }) : ""].filter(Boolean).join(", ")}`;
                if (c.mark === "none")
                  return (
                    <td key={i}>
                      <span className="grid-cell" />
                    </td>
                  );
                return (
                  <td key={i}>
                    <Link
                      href={`/runs?job_id=${job}&from=${c.from.toISOString()}&to=${c.to.toISOString()}`}
                      className={`grid-cell mark-${c.mark}`}
                      title={says}
                      aria-label={says}
                    >
                      {c.failed ? "×" : c.missed ? "!" : ""}
                    </Link>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      <p className="grid-legend faint">
        <i className="grid-cell mark-succeeded" />
        {t("state.succeeded")} <i className="grid-cell mark-failed">×</i>
        {t("state.failed")} <i className="grid-cell mark-missed">!</i>
        {t("grid.missed.legend")} <i className="grid-cell mark-running" />
        {t("state.running")} <i className="grid-cell mark-skipped" />
        {t("overview.rest")}
      </p>
    </div>
  );
}

/**
 * Durations draws the latest runs, oldest first: the duration of each, and its state by shape and colour. Each links to its run. The key of a bar is
 * its place, and a bar is scaled, so that no element moves when a run appears.
 */
export function Durations({ runs, now }: { runs: Run[]; now: Date }) {
  const t = useT();
  const took = (r: Run) =>
    r.duration_ms ?? (r.started_at && !r.finished_at ? Math.max(0, now.getTime() - Date.parse(r.started_at)) : 0);
  const ended = runs
    .map((r) => r.duration_ms)
    .filter((d): d is number => d !== null)
    .sort((a, b) => a - b);
  const middle = ended[Math.floor(ended.length / 2)];
  const most = Math.max(1, ...runs.map(took));
  return (
    <figure className="durations" role="group" aria-label={t("job.strip")}>
      <div className="durations-bars">
        {[...runs].reverse().map((r, i) => (
          <Link
            key={i}
            href={`/runs/${r.id}`}
            className={`duration state-${r.state}`}
            title={`${dateTime(r.fire_time ?? r.created_at)} · ${shortDuration(took(r))}`}
          >
            <span className="duration-bar" style={{ transform: `scaleY(${Math.max(0.04, took(r) / most)})` }} />
            <State state={r.state} reason={r.reason} compact />
          </Link>
        ))}
      </div>
      <figcaption className="faint">
        {middle !== undefined && t("job.durations", { median: shortDuration(middle), most: shortDuration(most) })}
      </figcaption>
    </figure>
  );
}
