import { Button, Group, Menu, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useLocation } from "wouter";
import { get, type Answer } from "../api/client";
import { useLanguage } from "../i18n";
import { useInside, useSteady, useTallest } from "../lib/held";
import { useListKeys, useNow, useTitle } from "../lib/hooks";
import { merge, useRunStream } from "../lib/live";
import { useMay } from "../lib/me";
import { DeleteJob, EnableSwitch, RunNow } from "../parts/actions";
import { Empty, ErrorNote, Icon, icons, PageHead, Section } from "../parts/basics";
import { JobAudit } from "../parts/jobaudit";
import { Definition, Upcoming } from "../parts/jobfacts";
import { JobGraph } from "../parts/jobgraph";
import { NewRows } from "../parts/livelist";
import { Durations, RunGrid } from "../parts/rungrid";
import { RunTable } from "../parts/runtable";
import { Scripts } from "../parts/scripts";
import { Why } from "../parts/why";

/** The number of runs that are drawn. Older runs are in the list of runs. */
const drawn = 500;

export default function JobPage({ id }: { id: number }) {
  const { t, language } = useLanguage();
  useListKeys();
  const may = useMay();
  const now = useNow();
  const [, navigate] = useLocation();
  const [running, setRunning] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const job = useQuery({
    queryKey: ["job", id],
    queryFn: () => get("/api/v1/jobs/{id}", { path: { id } }),
    refetchInterval: 5000,
  });
  const client = useQueryClient();
  const runs = useQuery({
    queryKey: ["job-runs", id],
    queryFn: () => get("/api/v1/runs", { query: { job_id: id, limit: drawn } }),
    refetchInterval: 60_000,
  });
  useRunStream(
    `?job_id=${id}`,
    (changed) => {
      client.setQueryData<Answer<"/api/v1/runs", "get">>(
        ["job-runs", id],
        (before) => before && { ...before, items: merge(before.items, changed).slice(0, drawn) },
      );
    },
    () => void runs.refetch(),
  );
  const missed = useQuery({
    queryKey: ["missed", id],
    queryFn: () => get("/api/v1/jobs/{id}/missed", { path: { id }, query: { limit: 100 } }),
    refetchInterval: 15_000,
  });
  // The three views of the runs stay the same together, while the reader is in one of them.
  const drawing = useInside();
  const lists = useInside();
  const items = runs.data?.items;
  const started = useMemo(() => items?.filter((r) => r.state !== "pending") ?? [], [items]);
  const { rows: past, fresh, release } = useSteady(started, (r) => r.id, drawing.inside || lists.inside);
  const height = useTallest();
  useTitle(job.data?.name ?? t("field.job"));
  if (job.error && !job.data) return <ErrorNote error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return null;
  const j = job.data;
  return (
    <>
      <PageHead
        title={j.name}
        sub={
          <Group gap="xs">
            {j.group}
            {j.tags.map((tag) => (
              <Link key={tag} className="tag" href={`/jobs?tag=${encodeURIComponent(tag)}`}>
                #{tag}
              </Link>
            ))}
            <EnableSwitch job={j} label />
          </Group>
        }
      >
        {may.operate && (
          <>
            <Button size="xs" leftSection={<Icon d={icons.play} size={14} />} onClick={() => setRunning(true)}>
              {t("run.now")}
            </Button>
            <Button
              size="xs"
              variant="default"
              component={Link}
              href={`/jobs/${id}/edit`}
              leftSection={<Icon d={icons.edit} size={14} />}
            >
              {t("edit")}
            </Button>
            <Menu position="bottom-end">
              <Menu.Target>
                <Button size="xs" variant="default" aria-label={t("more", { name: j.name })}>
                  ⋯
                </Button>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Item onClick={() => navigate(`/jobs/new?clone=${id}`)}>{t("clone")}</Menu.Item>
                <Menu.Item color="red" onClick={() => setDeleting(true)}>
                  {t("delete")}
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          </>
        )}
      </PageHead>
      {j.description && (
        <Text size="sm" mb="xs">
          {j.description}
        </Text>
      )}
      {j.note && (
        <Text size="sm" c="var(--warn)" mb="xs">
          {j.note}
        </Text>
      )}
      <div {...drawing.events}>{past.length > 0 && <Durations runs={past.slice(0, 50)} now={now} />}</div>
      <div className="columns wide-left">
        <div {...lists.events}>
          <Section
            title={t("job.recent")}
            right={
              <Link className="link" href={`/runs?job_id=${id}`}>
                {t("all")}
              </Link>
            }
          >
            {runs.error && <ErrorNote error={runs.error} />}
            <NewRows n={fresh} show={release} />
            <div ref={height}>
              {runs.data &&
                (past.length ? (
                  <RunTable runs={past.slice(0, 10)} job={false} now={now} />
                ) : (
                  <Empty title={t("job.noruns")}>
                    <Text size="sm">{t("job.noruns.text")}</Text>
                  </Empty>
                ))}
            </div>
          </Section>
          {past.length > 1 && (
            <Section title={t("grid.title")}>
              <RunGrid job={id} runs={past} missed={missed.data?.items ?? []} now={now} />
            </Section>
          )}
        </div>
        <div>
          <Upcoming job={j} />
          <Section title={t("job.definition")}>
            <Definition job={j} />
          </Section>
        </div>
      </div>
      <Section title={t("graph.title")}>
        <JobGraph job={j} />
      </Section>
      {j.script && <Scripts job={j} />}
      {missed.error && <ErrorNote error={missed.error} />}
      <Why key={language} job={j} missed={missed.data?.items ?? []} />
      {may.administer && <JobAudit job={j} />}
      {running && <RunNow job={j} onClose={() => setRunning(false)} />}
      {deleting && <DeleteJob job={j} onClose={() => setDeleting(false)} onDone={() => navigate("/jobs")} />}
    </>
  );
}
