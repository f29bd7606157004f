import { Alert, Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { post, type Job } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { useComplain, useRefresh } from "./actions";
import { Instant } from "./basics";
import { ReasonDialog } from "./reasondialog";

/** PauseJob asks for the reason and the end of a pause, and pauses the schedule of a job. */
export function PauseJob({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  return (
    <ReasonDialog
      title={t("group.pause.title", { name: job.name })}
      text={t("job.pause.text")}
      label={t("group.reason")}
      field="reason"
      required
      action={t("group.pause")}
      save={async (words) => {
        await post("/api/v1/jobs/{id}/pause", { path: { id: job.id }, body: words });
        await refresh("jobs", "job");
      }}
      onClose={onClose}
    />
  );
}

/** useResumeJob ends the pause of a job. */
export function useResumeJob(job: Job) {
  const refresh = useRefresh();
  return useMutation({
    mutationFn: () => post("/api/v1/jobs/{id}/resume", { path: { id: job.id } }),
    onError: useComplain(),
    onSettled: () => refresh("jobs", "job"),
  });
}

/** PausedMark marks a paused job in a list. */
export function PausedMark({ job: j }: { job: Job }) {
  const t = useT();
  if (!j.paused_at) return null;
  return (
    <span className="pill pill-warn" title={t("group.paused", { by: j.paused_by, why: j.pause_reason })}>
      {t("group.state.paused")}
    </span>
  );
}

/** PausedBanner says on the page of a paused job who paused it, why, since when and until when. */
export function PausedBanner({ job: j }: { job: Job }) {
  const t = useT();
  const may = useMay();
  const resume = useResumeJob(j);
  if (!j.paused_at) return null;
  return (
    <Alert color="yellow" variant="light" mb="sm">
      <div className="banner">
        <span>
          {t("group.paused", { by: j.paused_by, why: j.pause_reason })} · <Instant at={j.paused_at} />
          {j.paused_until && (
            <>
              {" "}
              – <Instant at={j.paused_until} />
            </>
          )}
        </span>
        {may.operate && (
          <Button size="compact-xs" variant="default" loading={resume.isPending} onClick={() => resume.mutate()}>
            {t("group.resume")}
          </Button>
        )}
      </div>
    </Alert>
  );
}
