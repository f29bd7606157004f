import { Link } from "wouter";
import type { Run, Schemas } from "../api/client";
import { useT } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { clock, dateTime, shortDuration } from "../lib/time";
import { Instant, State } from "./basics";
import { Icon } from "./icons";

const none = <span className="faint">–</span>;

/** took returns the duration of a run in milliseconds; of a running one until now. Runs that have not started have none. */
export function took(r: Run, now: Date): number | undefined {
  if (r.duration_ms != null) return r.duration_ms;
  return r.state === "running" && r.started_at ? Math.max(0, now.getTime() - Date.parse(r.started_at)) : undefined;
}

/** RunCells are the cells of a run. If most is set, the duration is drawn as a part of it. over is true if the run is no longer part of the list. */
export function RunCells({
  run: r,
  job,
  now,
  most,
  over = false,
}: {
  run: Run;
  job: boolean;
  now: Date;
  most?: number;
  over?: boolean;
}) {
  const t = useT();
  const explain = useExplain();
  const message = useMessage();
  const says = message(r) || explain(r.waiting) || (r.held_by ? t("run.held") : "");
  const fired = <Instant at={r.fire_time ?? r.created_at} now={now} />;
  const ms = over && r.duration_ms == null ? undefined : took(r, now);
  const shard = r.shard as { index: number; total: number } | null;
  return (
    <>
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
            {/* With the key, the text behind the name is a new element if the row shows another run, and no element moves. */}
            <span key={r.id} className="wide faint">
              {" "}
              {r.group}
            </span>
            {shard && (
              <span key={`${r.id} shard`} className="faint">
                {" "}
                {t("run.shard", { i: shard.index, n: shard.total })}
              </span>
            )}
          </div>
          <div className="phone-only one-line" title={says}>
            {fired}
            {says && <span className="faint"> · {says}</span>}
          </div>
          <div className="run-says one-line" title={says}>
            {says || "\u00a0"}
          </div>
        </td>
      )}
      {job ? (
        <td className="num mid">{fired}</td>
      ) : (
        <td className="grow">
          <div className="run-fired">
            {fired}
            {ms !== undefined && <span className="phone-too faint"> · {shortDuration(ms)}</span>}
          </div>
          <div className="run-says always one-line" title={says}>
            {says || "\u00a0"}
          </div>
        </td>
      )}
      <td className={job ? "num mid" : "num mid keep"}>
        {ms === undefined ? none : <span className={r.duration_ms == null ? "faint" : ""}>{shortDuration(ms)}</span>}
        {r.attempt > 1 && <span className="faint"> ×{r.attempt}</span>}
        {most !== undefined && (
          <div
            className={`took-bar state-${r.state}`}
            style={{ transform: `scaleX(${ms === undefined ? 0 : Math.max(0.01, ms / most)})` }}
          />
        )}
      </td>
      <td className="num wide">{r.lateness_ms != null ? shortDuration(r.lateness_ms) : none}</td>
      <td className="wide">{t(`cause.${r.cause}`)}</td>
      <td className="wide">
        <div className="clamp one" title={r.instance}>
          {r.instance || none}
        </div>
      </td>
      <td className="wide message">
        <div className="clamp one" title={says}>
          {says}
        </div>
      </td>
    </>
  );
}

/** MissedCells are the cells of missed fire times in the list of one job. href explains why they were missed. */
export function MissedCells({ missed: m, now, href }: { missed: Schemas["Missed"]; now: Date; href: string }) {
  const t = useT();
  const explain = useExplain();
  const why = explain(m.why);
  return (
    <>
      <td>
        <Link href={href} data-row className="row-link">
          <span className="state warn">
            <Icon d="M8 3v6M8 12.5h.01" size={14} />
            <span>{t("grid.missed", { n: m.count })}</span>
          </span>
        </Link>
      </td>
      <td className="grow">
        <div className="run-fired num" title={`${dateTime(m.first)} – ${dateTime(m.last)}`}>
          {m.first !== m.last && `${clock(m.first, now)} – `}
          {clock(m.last, now)}
        </div>
        <div className="run-says always one-line" title={why}>
          {why}
        </div>
      </td>
      <td className="mid keep">{none}</td>
      <td className="wide">{none}</td>
      <td className="wide">{none}</td>
      <td className="wide">{none}</td>
      <td className="wide message">
        <div className="clamp one" title={why}>
          {why}
        </div>
      </td>
    </>
  );
}
