import { Link } from "wouter";
import type { Run } from "../api/client";
import { useT } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { shortDuration } from "../lib/time";
import { Instant, State } from "./basics";

/**
 * RunTable is a table of runs. Without job, all runs are of one job, and the column of jobs is left out. Columns have fixed widths,
 * all rows have the same height, and the key of a row is its place: when a run appears, texts change and no element moves. Runs in gone are no longer part of the list, and are
 * pale.
 */
export function RunTable({
  runs,
  job = true,
  now,
  chosen,
  onChoose,
  gone,
}: {
  runs: Run[];
  job?: boolean;
  now: Date;
  chosen?: Set<string>;
  onChoose?: (id: string, on: boolean) => void;
  gone?: ReadonlySet<string>;
}) {
  const t = useT();
  const explain = useExplain();
  const message = useMessage();
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
            <th className="mid col-number">{t("run.duration")}</th>
            <th className="wide col-number">{t("run.late")}</th>
            <th className="wide col-number">{t("run.cause")}</th>
            <th className="wide col-instance">{t("run.instance")}</th>
            <th className="wide col-message">{t("run.message")}</th>
          </tr>
        </thead>
        <tbody>
          {runs.map((r, i) => {
            const says = message(r) || explain(r.waiting) || (r.held_by ? t("run.held") : "");
            const fired = <Instant at={r.fire_time ?? r.created_at} now={now} />;
            const more = says && <span className="faint"> · {says}</span>;
            return (
              <tr key={i} className={gone?.has(r.id) ? "gone" : undefined}>
                {onChoose && (
                  <td className="tick">
                    <input
                      type="checkbox"
                      checked={chosen?.has(r.id) ?? false}
                      onChange={(e) => onChoose(r.id, e.currentTarget.checked)}
                      aria-label={t("choose.run", { id: r.id })}
                    />
                  </td>
                )}
                <td>
                  <Link href={`/runs/${r.id}`} data-row className="row-link">
                    <State state={r.state} reason={r.reason} />
                  </Link>
                </td>
                {job && (
                  <td className="grow">
                    <div className="clamp one">
                      <Link href={`/jobs/${r.job_id}`} className="plain-link" title={r.job_name}>
                        {r.job_name}
                      </Link>
                      <span className="wide faint"> {r.group}</span>
                      {r.shard ? (
                        <span className="faint">
                          {" "}
                          {t("run.shard", {
                            i: (r.shard as { index: number }).index,
                            n: (r.shard as { total: number }).total,
                          })}
                        </span>
                      ) : null}
                    </div>
                    <div className="phone-only one-line" title={says}>
                      {fired}
                      {more}
                    </div>
                    <div className="run-says one-line" title={says}>
                      {says || " "}
                    </div>
                  </td>
                )}
                {job ? (
                  <td className="num mid">{fired}</td>
                ) : (
                  <td className="grow">
                    <div className="run-fired" title={says}>
                      {fired}
                      <span className="narrow-only">{more}</span>
                    </div>
                  </td>
                )}
                <td className="num mid">
                  {r.duration_ms != null ? (
                    shortDuration(r.duration_ms)
                  ) : r.state === "running" && r.started_at && !gone?.has(r.id) ? (
                    <span className="faint">
                      {shortDuration(Math.max(0, now.getTime() - Date.parse(r.started_at)))}
                    </span>
                  ) : (
                    <span className="faint">–</span>
                  )}
                  {r.attempt > 1 && <span className="faint"> ×{r.attempt}</span>}
                </td>
                <td className="num wide">
                  {r.lateness_ms != null ? shortDuration(r.lateness_ms) : <span className="faint">–</span>}
                </td>
                <td className="wide">{t(`cause.${r.cause}`)}</td>
                <td className="wide">
                  <div className="clamp one" title={r.instance}>
                    {r.instance || <span className="faint">–</span>}
                  </div>
                </td>
                <td className="wide message">
                  <div className="clamp one" title={says}>
                    {says}
                  </div>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
