import { Link } from "wouter";
import type { RunDetail } from "../api/client";
import { useT } from "../i18n";
import { useMessage } from "../i18n/explain";
import { firstOfAttempt } from "../lib/loglines";
import { millis, shortDuration } from "../lib/time";
import { attemptSpans } from "../lib/timeline";
import { reasonText, Section } from "./basics";
import { Icon, shapes } from "./icons";
import { outcome } from "./timeline";

const shape = { succeeded: "succeeded", failed: "failed", lost: "failed", cancelled: "cancelled" } as const;

/** Attempts compares the attempts of a run: what became of each, where, and how long each took on one scale of time. */
export function Attempts({ run, now }: { run: RunDetail; now: Date }) {
  const t = useT();
  const message = useMessage();
  const { spans, total } = attemptSpans(run, now);
  if (spans.length < 2) return null;
  return (
    <Section
      title={t("attempts.title")}
      right={<span className="num">{t("attempts.total", { n: spans.length, d: shortDuration(total) })}</span>}
    >
      <div className="table-box">
        <table className="list">
          <thead>
            <tr>
              <th>{t("run.attempt")}</th>
              <th>{t("run.state")}</th>
              <th className="mid">{t("run.instance")}</th>
              <th className="wide">{t("instance.up")}</th>
              <th>{t("run.duration")}</th>
              <th className="mid attempt-times">
                <span className="sr-only">{t("attempts.scale")}</span>
              </th>
              <th className="wide">{t("run.message")}</th>
            </tr>
          </thead>
          <tbody>
            {spans.map(({ of: a, from, share, ms, open }, i) => {
              const end = open ? "running" : a.outcome in shape ? shape[a.outcome as keyof typeof shape] : "skipped";
              const says = a.message ? message(a) : "";
              return (
                <tr key={i}>
                  <td>
                    <Link
                      className="link num"
                      href={`/runs/${run.id}?line=${firstOfAttempt(a.attempt)}`}
                      title={t("attempts.log", { n: a.attempt })}
                    >
                      {a.attempt}
                    </Link>
                  </td>
                  <td>
                    <span className={`state state-${end}`}>
                      <Icon d={shapes[end]} size={14} />
                      {open ? t("state.running") : t(`outcome.${outcome(a.outcome)}`)}
                      {a.reason && <span className="state-reason">{reasonText(t, a.reason)}</span>}
                    </span>
                  </td>
                  <td className="mid">
                    <div className="clamp one">
                      {a.instance || (open && run.instance) || <span className="faint">–</span>}
                    </div>
                    <div className="clamp one faint" title={a.host}>
                      {[a.executor_version, a.host].filter(Boolean).join(" · ")}
                    </div>
                  </td>
                  <td className="num wide">{a.started_at ? millis(a.started_at) : <span className="faint">–</span>}</td>
                  <td className="num">{shortDuration(ms)}</td>
                  <td className="mid attempt-times">
                    <div
                      className={`attempt-bar state-${end}`}
                      style={{ marginLeft: `${from * 100}%`, width: `${share * 100}%` }}
                    />
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
    </Section>
  );
}
