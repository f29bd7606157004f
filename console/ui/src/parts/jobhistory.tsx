import { useQuery } from "@tanstack/react-query";
import { get, type Job, type Schemas } from "../api/client";
import { useLanguage } from "../i18n";
import { useNow } from "../lib/hooks";
import { useMay } from "../lib/me";
import { Section } from "./basics";
import { JobAudit } from "./jobaudit";
import { RunGrid } from "./rungrid";
import { Why } from "./why";

/** The number of runs that the grid draws. */
const drawn = 500;

/** JobHistory shows when a job ran and with which outcome, why it did not run, and who changed it. */
export default function JobHistory({ job, missed }: { job: Job; missed: Schemas["Missed"][] }) {
  const { t, language } = useLanguage();
  const may = useMay();
  const now = useNow();
  const runs = useQuery({
    queryKey: ["job-runs", job.id, "grid"],
    queryFn: () => get("/api/v1/runs", { query: { job_id: job.id, limit: drawn, planned: false } }),
    refetchInterval: 60_000,
  });
  const past = runs.data?.items ?? [];
  return (
    <>
      {past.length > 1 && (
        <Section title={t("grid.title")}>
          <RunGrid job={job.id} runs={past} missed={missed} now={now} />
        </Section>
      )}
      <Why key={language} job={job} missed={missed} />
      {may.administer && <JobAudit job={job} />}
    </>
  );
}
