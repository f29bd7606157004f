import { Alert } from "@mantine/core";
import type { Job, RunDetail } from "../api/client";
import { useT } from "../i18n";
import { final } from "../lib/states";

/** XXLRun names the limits of XXL-JOB's protocol that affect a run at such an executor. */
export function XXLRun({ run: r, job }: { run: RunDetail; job?: Job }) {
  const t = useT();
  const x = r.xxl_job;
  if (!x) return null;
  const over = final(r.state);
  const kept =
    r.state === "failed" && r.reason === "lost" && r.attempt < r.max_attempts && job?.retry_unknown === false;
  const says = [
    x.unanswered && t("xxl.run.unanswered", { instance: r.instance }),
    !over && r.kill_requested_at && t("xxl.run.kill"),
    !over && x.shared && t("xxl.run.shared", { instance: r.instance }),
    kept && t("xxl.run.lost"),
  ].filter((s): s is string => !!s);
  if (says.length === 0) return null;
  return (
    <Alert color="yellow" variant="light" mb="sm">
      {x.unanswered && <b>{t("xxl.run.sent")}</b>}
      {says.map((s) => (
        <div key={s}>{s}</div>
      ))}
    </Alert>
  );
}
