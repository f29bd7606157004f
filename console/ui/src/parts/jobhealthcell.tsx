// What the list of jobs shows about the health of a job.
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { useT } from "../i18n";
import { useNow } from "../lib/hooks";
import { dateTime, shortDuration } from "../lib/time";
import { reasonText } from "./basics";
import { Icon, shapes } from "./icons";

type Health = Schemas["JobHealth"];
const none = <span className="faint">–</span>;

/** HealthMark says whether a job fails, for how long, and how many of its runs failed in a row. It links to the newest failure. */
export function HealthMark({ health: h }: { health?: Health }) {
  const t = useT();
  const now = useNow(10_000);
  if (!h || h.state === "unknown")
    return (
      <span className="faint" title={t("health.unknown")}>
        –
      </span>
    );
  if (h.state === "ok")
    return (
      <span className="state state-succeeded quiet-ok">
        <Icon d={shapes.succeeded} size={14} />
        {t("health.ok")}
      </span>
    );
  const since = h.failing_since ? shortDuration(Math.max(0, now.getTime() - Date.parse(h.failing_since))) : "";
  const title = [
    h.failing_since && `${t("attention.since")} ${dateTime(h.failing_since)}`,
    t("health.streak", { n: h.streak }),
    h.last_failure?.reason && reasonText(t, h.last_failure.reason),
  ];
  const inside = (
    <>
      <Icon d={shapes.failed} size={14} />
      <span>
        {t("health.failing")} <span className="num health-since">{since}</span>
        {h.streak > 1 && <span className="num health-since"> ×{h.streak}</span>}
      </span>
    </>
  );
  return h.last_failure ? (
    <Link
      href={`/runs/${h.last_failure.run_id}`}
      className="state state-failed failing-link"
      title={title.filter(Boolean).join(" · ")}
    >
      {inside}
    </Link>
  ) : (
    <span className="state state-failed">{inside}</span>
  );
}

/** Durations are the 95th percentile and the median of the durations of a job's last runs. */
export function Durations({ health: h }: { health?: Health }) {
  if (!h || h.p95_ms == null) return none;
  return (
    <>
      {shortDuration(h.p95_ms)} <span className="faint">/ {h.p50_ms == null ? "–" : shortDuration(h.p50_ms)}</span>
    </>
  );
}
