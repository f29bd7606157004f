import { useMemo } from "react";
import { Link } from "wouter";
import type { Run, Schemas } from "../api/client";
import { useT } from "../i18n";
import { grid } from "../lib/grid";
import { dateTime } from "../lib/time";

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
    <div className="table-box" role="group" aria-label={t("grid.title")}>
      <table className={`run-grid run-grid-${g.unit}`}>
        <thead>
          <tr>
            <td />
            {g.rows[0]?.cells.map((_, i) => (
              <th key={i} scope="col">
                <span>{column(i)}</span>
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
        <span>
          <i className="grid-cell mark-succeeded" />
          {t("state.succeeded")}
        </span>
        <span>
          <i className="grid-cell mark-failed">×</i>
          {t("state.failed")}
        </span>
        <span>
          <i className="grid-cell mark-missed">!</i>
          {t("grid.missed.legend")}
        </span>
        <span>
          <i className="grid-cell mark-running" />
          {t("state.running")}
        </span>
        <span>
          <i className="grid-cell mark-skipped" />
          {t("overview.rest")}
        </span>
      </p>
    </div>
  );
}
