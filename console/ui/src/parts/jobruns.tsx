import { Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type Answer, type Job, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useInside, useSteady, useTallest } from "../lib/held";
import { useNow } from "../lib/hooks";
import { withMissed } from "../lib/jobrows";
import { merge, useRunStream } from "../lib/live";
import { Empty, ErrorNote, Section } from "./basics";
import { Upcoming } from "./jobfacts";
import { NewRows } from "./livelist";
import { RunTable } from "./runtable";

/** The number of runs that are shown. Older runs are in the list of runs. */
const most = 50;

/** JobRuns shows the latest runs of a job with their durations, the fire times that were missed between them, and the next fire times. */
export function JobRuns({ job, missed }: { job: Job; missed: Schemas["Missed"][] }) {
  const t = useT();
  const now = useNow();
  const client = useQueryClient();
  const key = ["job-runs", job.id];
  const runs = useQuery({
    queryKey: key,
    queryFn: () => get("/api/v1/runs", { query: { job_id: job.id, limit: most, planned: false } }),
    refetchInterval: 60_000,
  });
  useRunStream(
    `?job_id=${job.id}`,
    (changed) => {
      client.setQueryData<Answer<"/api/v1/runs", "get">>(
        key,
        (before) => before && { ...before, items: merge(before.items, changed).slice(0, most) },
      );
    },
    () => void runs.refetch(),
  );
  const { inside, events } = useInside();
  const height = useTallest();
  const rows = useSteady(runs.data?.items ?? [], (r) => r.id, inside);
  const shown = withMissed(rows.rows, missed, !runs.data?.next_cursor);
  return (
    <div className="columns job-runs">
      <div {...events}>
        <Section
          title={t("job.recent")}
          right={
            <Link className="link" href={`/runs?job_id=${job.id}`}>
              {t("all")}
            </Link>
          }
        >
          {runs.error && <ErrorNote error={runs.error} />}
          <NewRows n={rows.fresh} show={rows.release} />
          <div ref={height}>
            {runs.data &&
              (shown.length ? (
                <RunTable rows={shown} job={false} now={now} />
              ) : (
                <Empty title={t("job.noruns")}>
                  <Text size="sm">{t("job.noruns.text")}</Text>
                </Empty>
              ))}
          </div>
        </Section>
      </div>
      <Upcoming job={job} />
    </div>
  );
}
