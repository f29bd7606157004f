import { Link } from "wouter";
import type { Job, Schemas } from "../api/client";
import { useT } from "../i18n";
import { useMessage } from "../i18n/explain";
import { useNow } from "../lib/hooks";
import { clock, shortDuration } from "../lib/time";
import { Instant, reasonText } from "./basics";
import { Durations } from "./jobhealthcell";
import { Icon, shapes } from "./icons";
import { Changes } from "./changes";

/** JobHealth says at the top of a job's page whether the job fails, since when and why, and what it did last. Before the first result it is empty. */
export function JobHealth({ job }: { job: Job }) {
  const t = useT();
  const h = job.health;
  if (!h || (h.state === "unknown" && !h.last_failure && !h.last_success)) return null;
  return (
    <section className={`health health-${h.state}`} aria-label={t("health.head")}>
      {h.state === "failing" ? <Failing job={job} health={h} /> : <Well health={h} />}
    </section>
  );
}

/** Well is the health of a job that does not fail, on one line. */
function Well({ health: h }: { health: Schemas["JobHealth"] }) {
  const t = useT();
  const now = useNow();
  return (
    <span>
      {h.state === "ok" && (
        <span className="state state-succeeded">
          <Icon d={shapes.succeeded} size={14} />
          {t("health.ok")}
        </span>
      )}
      {h.last_success && (
        <>
          {" · "}
          <Link className="plain-link" href={`/runs/${h.last_success.run_id}`}>
            {t("health.lastsuccess", { at: clock(h.last_success.at, now) })}
          </Link>
        </>
      )}
      {h.last_failure && (
        <>
          {" · "}
          <Link className="plain-link" href={`/runs/${h.last_failure.run_id}`}>
            {t("health.lastfailure", { at: clock(h.last_failure.at, now) })}
          </Link>
        </>
      )}
      {" · "}
      {t("health.day", { ok: h.last_24h.succeeded, bad: h.last_24h.failed })}
      {h.p95_ms != null && (
        <>
          {" · "}
          {t("health.durations")} <Durations health={h} />
        </>
      )}
    </span>
  );
}

/** Failing says since when a job fails, why, and what was different at its last success. */
function Failing({ job, health: h }: { job: Job; health: Schemas["JobHealth"] }) {
  const t = useT();
  const now = useNow();
  const message = useMessage();
  const [bad, good] = [h.last_failure, h.last_success];
  const ms = h.failing_since ? Math.max(0, now.getTime() - Date.parse(h.failing_since)) : 0;
  return (
    <>
      <p className="health-title">
        <Icon d={shapes.failed} size={16} /> {t("health.failingfor", { d: shortDuration(ms) })}
        <span className="health-more num">
          {t("attention.since")} <Instant at={h.failing_since} now={now} /> · {t("health.streak", { n: h.streak })}
        </span>
      </p>
      {bad && (
        <p className="health-says">
          <Link className="plain-link" href={`/runs/${bad.run_id}`}>
            {[reasonText(t, bad.reason), message(bad)].filter(Boolean).join(" · ")}
          </Link>
        </p>
      )}
      <dl className="health-runs">
        {bad && (
          <div>
            <dt>{t("health.failure")}</dt>
            <dd>
              <LastRun run={bad} />
            </dd>
          </div>
        )}
        <div>
          <dt>{t("health.success")}</dt>
          <dd>{good ? <LastRun run={good} /> : t("health.nosuccess")}</dd>
        </div>
      </dl>
      {bad && good && <Changes job={job.id} from={good.version} to={bad.version} changes={h.changes} />}
    </>
  );
}

/** LastRun links to a run, and says which version of the job it ran. */
function LastRun({ run }: { run: Schemas["LastSuccess"] }) {
  const t = useT();
  const now = useNow();
  return (
    <>
      <Link className="link num" href={`/runs/${run.run_id}`}>
        <Instant at={run.at} now={now} />
      </Link>{" "}
      <span className="faint">
        {[t("versions.one", { n: run.version }), run.instance, run.executor_version].filter(Boolean).join(" · ")}
      </span>
    </>
  );
}
