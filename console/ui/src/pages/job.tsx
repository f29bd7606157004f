import { Button, Group, Menu, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { get, type Answer, type Job } from "../api/client";
import { useLanguage, useT } from "../i18n";
import { useListKeys, useNow, useTitle } from "../lib/hooks";
import { merge, useRunStream } from "../lib/live";
import { useMay } from "../lib/me";
import { dateTime, goDuration, offset, viewerZone } from "../lib/time";
import { DeleteJob, EnableSwitch, RunNow } from "../parts/actions";
import {
  Ago,
  Countdown,
  Empty,
  ErrorNote,
  errorText,
  Facts,
  Icon,
  icons,
  PageHead,
  Section,
  Snippet,
} from "../parts/basics";
import { JobAudit } from "../parts/jobaudit";
import { JobGraph } from "../parts/jobgraph";
import { Durations, RunGrid } from "../parts/rungrid";
import { RunTable } from "../parts/runtable";
import { scheduleText, timesText } from "../parts/schedule";
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
  useTitle(job.data?.name ?? t("field.job"));
  if (job.error && !job.data) return <ErrorNote error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return null;
  const j = job.data;
  const past = runs.data?.items.filter((r) => r.state !== "pending") ?? [];
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
      {past.length > 0 && <Durations runs={past.slice(0, 50)} now={now} />}
      <div className="columns wide-left">
        <div>
          <Section
            title={t("job.recent")}
            right={
              <Link className="link" href={`/runs?job_id=${id}`}>
                {t("all")}
              </Link>
            }
          >
            {runs.error && <ErrorNote error={runs.error} />}
            {runs.data &&
              (past.length ? (
                <RunTable runs={past.slice(0, 10)} job={false} now={now} />
              ) : (
                <Empty title={t("job.noruns")}>
                  <Text size="sm">{t("job.noruns.text")}</Text>
                </Empty>
              ))}
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

function useNext(job: Job) {
  const { language } = useLanguage();
  return useQuery({
    queryKey: ["job", job.id, "next", job.version, job.next_fire_time, language],
    queryFn: () => get("/api/v1/jobs/{id}/next", { path: { id: job.id }, query: { count: 5 } }),
    enabled: job.schedule.kind !== "none",
    placeholderData: (before) => before,
  });
}

/** Described is a job's schedule. A cron expression has its description. */
function Described({ job: j }: { job: Job }) {
  const t = useT();
  const next = useNext(j);
  return (
    <>
      <span className="mono">{timesText(t, j.schedule)}</span>
      {j.schedule.kind === "cron" && next.data && <div className="faint">{next.data.description}</div>}
    </>
  );
}

function Upcoming({ job }: { job: Job }) {
  const t = useT();
  const next = useNext(job);
  const zone = job.schedule.time_zone || (job.schedule.kind === "cron" ? "UTC" : viewerZone());
  return (
    <Section title={t("job.upcoming")}>
      <Text size="sm" mb={4}>
        {job.schedule.kind === "none" ? t("kind.none.help") : (next.data?.description ?? scheduleText(t, job.schedule))}
      </Text>
      {next.error && (
        <Text size="sm" c="var(--bad)">
          {errorText(t, next.error)}
        </Text>
      )}
      {!job.enabled && job.schedule.kind !== "none" && (
        <Text size="sm" c="dimmed">
          {t("job.disabled.text")}
        </Text>
      )}
      {job.enabled &&
        next.data &&
        (next.data.fire_times.length === 0 ? (
          <Text size="sm" c="dimmed">
            {t("schedule.never")}
          </Text>
        ) : (
          <ol className="times">
            {next.data.fire_times.map((at, i) => (
              <li key={at} className="num">
                <time dateTime={at} title={`${dateTime(at, zone)} ${offset(at, zone)} · ${zone}`}>
                  {dateTime(at)}
                </time>{" "}
                {i === 0 && <Countdown at={at} />}
              </li>
            ))}
          </ol>
        ))}
    </Section>
  );
}

function Definition({ job: j }: { job: Job }) {
  const t = useT();
  return (
    <>
      <Facts
        of={[
          [t("field.schedule"), <Described key="s" job={j} />],
          [
            t("field.calendar"),
            j.schedule.calendar ? (
              <Link key="c" className="link" href={`/calendars/${j.schedule.calendar}`}>
                {j.schedule.calendar}
              </Link>
            ) : null,
          ],
          [
            t("field.handler"),
            j.handler ? (
              <span key="h" className="mono">
                {j.handler}
              </span>
            ) : null,
          ],
          [
            t("field.script"),
            j.script ? t("job.script", { language: j.script.language, n: j.script.version ?? 1 }) : null,
          ],
          [t("field.misfire"), t(`misfire.${j.misfire}`)],
          [
            t("field.block"),
            `${t(`block.${j.block}`)}${j.block_scope === "instance" ? ` · ${t("scope.instance")}` : ""}`,
          ],
          [
            t("field.route"),
            `${t(`route.${j.route}`)}${j.route_key ? `: ${j.route_key}` : ""}${j.shards ? ` · ${j.shards}` : ""}`,
          ],
          [t("field.timeout"), j.timeout === "0s" ? t("none") : goDuration(j.timeout)],
          [t("field.start_deadline"), goDuration(j.start_deadline)],
          [
            t("field.retries"),
            j.retries
              ? t("job.retries", {
                  n: j.retries,
                  initial: goDuration(j.retry_backoff.initial ?? ""),
                  factor: j.retry_backoff.factor ?? 2,
                  max: goDuration(j.retry_backoff.max ?? ""),
                })
              : "0",
          ],
          [
            t("field.alert"),
            j.alert.channels?.length
              ? `${j.alert.channels.join(", ")}: ${(j.alert.on ?? []).map((o) => t(`alert.${o}`)).join(", ")}`
              : null,
          ],
          [t("field.retention"), j.retention ? goDuration(j.retention) : null],
          [t("field.author"), j.author],
          [
            t("job.version"),
            <>
              {j.version} · <Ago at={j.updated_at} />
            </>,
          ],
        ]}
      />
      {j.param && (
        <>
          <Text size="xs" c="dimmed" mt="xs">
            {t("field.param")}
          </Text>
          <Snippet code={j.param} />
        </>
      )}
    </>
  );
}
