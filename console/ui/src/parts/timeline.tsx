import type { RunDetail } from "../api/client";
import { useT } from "../i18n";
import { useMessage } from "../i18n/explain";
import { millis, shortDuration } from "../lib/time";
import { timeline } from "../lib/timeline";
import { reasonText } from "./basics";

/** Timeline shows the steps of a run, and the time between them. */
export function Timeline({ run, now }: { run: RunDetail; now: Date }) {
  const t = useT();
  const message = useMessage();
  const entries = timeline(run);
  const last = entries.at(-1)?.step;
  const open = run.state === "running" && last?.kind === "started" ? now.getTime() - Date.parse(last.at) : undefined;
  return (
    <ol className="timeline">
      {entries.map(({ step, gap }, i) => (
        <li key={i} className={`step step-${step.kind}`}>
          {/* A step before the one above it was early: runs are bound a little ahead of their due instant. */}
          {gap && (
            <div className="gap">
              {gap.ms >= 0
                ? t(`gap.${gap.kind}`, { d: shortDuration(gap.ms) })
                : t("gap.early", { d: shortDuration(-gap.ms) })}
            </div>
          )}
          <div className="step-line">
            <span className="num step-at" title={step.at}>
              {millis(step.at)}
            </span>
            <span>
              {step.kind === "fire" && !run.fire_time ? t("step.created") : t(`step.${step.kind}`)}
              {step.kind === "dispatched" && (step.attemptOf?.instance || run.instance)
                ? ` ${step.attemptOf?.instance || run.instance}`
                : ""}
              {run.max_attempts > 1 && step.attempt !== undefined && step.kind !== "finished" && (
                <span className="faint"> {t("step.attempt", { n: step.attempt })}</span>
              )}
              {step.kind === "finished" && step.attemptOf && (
                <span className="faint">
                  {" "}
                  {[
                    step.attemptOf.outcome && t(`outcome.${outcome(step.attemptOf.outcome)}`),
                    step.attemptOf.reason && reasonText(t, step.attemptOf.reason),
                  ]
                    .filter(Boolean)
                    .join(": ")}
                </span>
              )}
            </span>
          </div>
          {step.kind === "finished" && step.attemptOf?.message && step.attemptOf.message !== run.message && (
            <pre className="message-block">{message(step.attemptOf)}</pre>
          )}
        </li>
      ))}
      {open !== undefined && (
        <li className="step step-open">
          <div className="gap">{t("gap.running", { d: shortDuration(Math.max(0, open)) })}</div>
        </li>
      )}
    </ol>
  );
}

/** outcome returns the part of a key that names what became of an attempt. */
export const outcome = (o: string) =>
  o === "succeeded" || o === "failed" || o === "cancelled" || o === "lost" || o === "unstarted" ? o : "other";
