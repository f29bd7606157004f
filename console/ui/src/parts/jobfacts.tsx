import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type Job } from "../api/client";
import { useLanguage, useT } from "../i18n";
import { dateTime, goDuration, offset, viewerZone } from "../lib/time";
import { webAddress } from "../lib/webaddress";
import { Ago, Countdown, errorText, Facts, Section, Snippet } from "./basics";
import { scheduleText, timesText } from "./schedule";

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
  return (
    <>
      <span className="mono">{timesText(t, j.schedule)}</span>
      {j.schedule.kind === "cron" && <div className="faint">{j.schedule_description}</div>}
    </>
  );
}

/** Upcoming shows the next fire times of a job. */
export function Upcoming({ job }: { job: Job }) {
  const t = useT();
  const next = useNext(job);
  const viewer = viewerZone();
  const zone = job.schedule.time_zone || (job.schedule.kind === "cron" ? "UTC" : viewer);
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
      {job.enabled && job.paused_at && job.schedule.kind !== "none" && (
        <Text size="sm" c="dimmed">
          {t("job.paused.text")}
        </Text>
      )}
      {job.enabled &&
        !job.paused_at &&
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
                {offset(at)} {i === 0 && <Countdown at={at} />}
                {offset(at, zone) !== offset(at) && (
                  <div className="faint">
                    {dateTime(at, zone).slice(0, 16)} {offset(at, zone)}
                  </div>
                )}
              </li>
            ))}
          </ol>
        ))}
    </Section>
  );
}

/** Definition shows the fields of a job. */
export function Definition({ job: j }: { job: Job }) {
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
          [t("field.retry_unknown"), j.retry_unknown ? t("retry_unknown.on") : null],
          [
            t("field.alert"),
            j.alert.channels?.length
              ? `${j.alert.channels.join(", ")}: ${(j.alert.on ?? []).map((o) => t(`alert.${o}`)).join(", ")}`
              : null,
          ],
          [
            t("field.runbook_url"),
            webAddress(j.runbook_url) ? (
              <a key="r" className="link" href={webAddress(j.runbook_url)} target="_blank" rel="noopener noreferrer">
                {j.runbook_url}
              </a>
            ) : null,
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
