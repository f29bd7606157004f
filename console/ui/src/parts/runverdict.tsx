import { Alert, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type RunDetail } from "../api/client";
import { useT } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { final } from "../lib/states";
import { shortDuration } from "../lib/time";
import { Runbook } from "./runbook";
import { SinceGood } from "./rungood";
import { XXLRun } from "./xxlrun";

/** RunVerdict says what is wrong with a run, or why it waits: its error with the runbook, the wait, a requested kill. */
export function RunVerdict({ run: r, now }: { run: RunDetail; now: Date }) {
  const t = useT();
  const explain = useExplain();
  const message = useMessage();
  const failed = r.state === "failed" || r.state === "retrying";
  const job = useQuery({
    queryKey: ["job", r.job_id],
    queryFn: () => get("/api/v1/jobs/{id}", { path: { id: r.job_id } }),
    enabled: failed,
    staleTime: 60_000,
    retry: false,
  });
  return (
    <div className="verdict">
      {r.kill_requested_at && !final(r.state) && (
        <Alert color="yellow" variant="light" mb="sm">
          {r.started_at
            ? t("run.killing.running", { d: shortDuration(Math.max(0, now.getTime() - Date.parse(r.started_at))) })
            : t("run.killing")}
        </Alert>
      )}
      <XXLRun run={r} job={job.data} />
      {r.message && (
        <pre className={`message-block ${r.state === "failed" ? "bad" : ""}`} tabIndex={0}>
          {message(r)}
        </pre>
      )}
      {failed && job.data?.runbook_url && (
        <Text size="sm" mb="xs">
          <Runbook url={job.data.runbook_url} />
        </Text>
      )}
      {r.state === "failed" && job.data && <SinceGood run={r} job={job.data} now={now} />}
      {r.waited && r.waited.duration_ms >= 1000 && (
        <Text size="sm" mb="xs">
          <b>{t("run.waited", { d: shortDuration(r.waited.duration_ms) })}</b> {explain(r.waited)}
        </Text>
      )}
      {r.waiting && (
        <Text size="sm" mb="xs">
          <b>{t("run.waiting")}</b> {explain(r.waiting)}
        </Text>
      )}
      {r.held_by && (
        <Text size="sm" mb="xs">
          <b>{t("run.held")}</b>{" "}
          <Link className="link mono" href={`/runs/${r.held_by}`}>
            {r.held_by}
          </Link>
        </Text>
      )}
      {r.note && (
        <Text size="sm" mb="xs">
          {r.note}
        </Text>
      )}
    </div>
  );
}
