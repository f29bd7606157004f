import { useLocation } from "wouter";
import type { Run } from "../api/client";
import { useT } from "../i18n";
import type { RunRow } from "../lib/jobrows";
import { MissedCells, RunCells, took } from "./runcells";

/**
 * RunTable is a table of runs, or of the rows of one job. Without job, all rows are of one job: the column of jobs is left out, and durations are also
 * drawn, on one scale. Columns have fixed widths, all rows have the same height, and the key of a row is its place: when a run appears, texts
 * change and no element moves. Runs in gone are no longer part of the list, and are pale.
 */
export function RunTable({
  runs,
  rows,
  job = true,
  now,
  chosen,
  onChoose,
  gone,
}: {
  runs?: Run[];
  rows?: RunRow[];
  job?: boolean;
  now: Date;
  chosen?: Set<string>;
  onChoose?: (id: string, on: boolean) => void;
  gone?: ReadonlySet<string>;
}) {
  const t = useT();
  const [path] = useLocation();
  const all: RunRow[] = rows ?? (runs ?? []).map((run) => ({ run }));
  const most = job ? undefined : Math.max(1, ...all.map((r) => (r.run ? (took(r.run, now) ?? 0) : 0)));
  return (
    <div className="table-box">
      <table className="list run-table">
        <thead>
          <tr>
            {onChoose && (
              <th className="tick">
                <span className="sr-only">{t("choose")}</span>
              </th>
            )}
            <th className="col-state">{t("run.state")}</th>
            {job && <th className="grow">{t("field.job")}</th>}
            <th className={job ? "mid col-fire" : "grow"}>{t("run.fire")}</th>
            <th className={job ? "mid col-number" : "mid keep col-took"}>{t("run.duration")}</th>
            <th className="wide col-number">{t("run.late")}</th>
            <th className="wide col-cause">{t("run.cause")}</th>
            <th className="wide col-instance">{t("run.instance")}</th>
            <th className="wide col-message">{t("run.message")}</th>
          </tr>
        </thead>
        <tbody>
          {all.map((r, i) => (
            <tr key={i} className={r.run && gone?.has(r.run.id) ? "gone" : undefined}>
              {onChoose && r.run && (
                <td className="tick">
                  <input
                    type="checkbox"
                    checked={chosen?.has(r.run.id) ?? false}
                    onChange={(e) => r.run && onChoose(r.run.id, e.currentTarget.checked)}
                    aria-label={t("choose.run", { id: r.run.id })}
                  />
                </td>
              )}
              {r.run ? (
                <RunCells run={r.run} job={job} now={now} most={most} over={gone?.has(r.run.id)} />
              ) : (
                <MissedCells missed={r.missed} now={now} href={`${path}?why=${encodeURIComponent(r.missed.last)}`} />
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
