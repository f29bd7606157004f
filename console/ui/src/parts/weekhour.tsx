import { Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get } from "../api/client";
import { useLanguage } from "../i18n";
import { dateTime } from "../lib/time";
import type { Slot } from "../lib/week";
import { errorText, Section } from "./basics";

/** WeekHour shows the content of a cell: its past runs, and the jobs that will fire. */
export function WeekHour({ slot, now, group }: { slot: Slot; now: Date; group: string }) {
  const { t } = useLanguage();
  const to = new Date(Date.parse(slot.from) + 3_600_000).toISOString();
  const ahead = Date.parse(to) > now.getTime();
  const jobs = useQuery({
    queryKey: ["week-jobs", slot.from, group],
    enabled: ahead,
    queryFn: ({ signal }) =>
      get("/api/v1/calendar/jobs", { query: { from: slot.from, to, group: group || undefined }, signal }),
    staleTime: 30_000,
  });
  const runs = `/runs?${new URLSearchParams({ ...(group ? { group } : {}), from: slot.from, to }).toString()}`;
  return (
    <div className="below" aria-live="polite">
      <Section
        title={`${dateTime(slot.from).slice(0, 16)} – ${dateTime(to).slice(11, 16)}`}
        right={
          slot.runs > 0 && (
            <Link className="link" href={runs}>
              {t("week.show", { n: slot.runs })}
            </Link>
          )
        }
      >
        {slot.runs > 0 && (
          <Text size="sm">
            {t("week.runs", { n: slot.runs })}
            {slot.failed > 0 && <span className="bad"> · {t("week.failed", { n: slot.failed })}</span>}
          </Text>
        )}
        {jobs.error && (
          <Text size="sm" c="var(--bad)">
            {errorText(t, jobs.error)}
          </Text>
        )}
        {ahead &&
          jobs.data &&
          (jobs.data.items.length === 0 ? (
            <Text size="sm" c="dimmed">
              {t("week.nothing")}
            </Text>
          ) : (
            <div className="table-box">
              <table className="list">
                <thead>
                  <tr>
                    <th>{t("field.job")}</th>
                    <th>{t("field.group")}</th>
                    <th>{t("week.first")}</th>
                    <th>{t("week.fires")}</th>
                  </tr>
                </thead>
                <tbody>
                  {jobs.data.items.map((j) => (
                    <tr key={j.job_id}>
                      <td className="grow">
                        <Link className="row-link" href={`/jobs/${j.job_id}`} data-row>
                          {j.job_name}
                        </Link>
                      </td>
                      <td>{j.group}</td>
                      <td className="num">{dateTime(j.first_fire_time).slice(11)}</td>
                      <td className="num">{j.planned}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ))}
        {ahead && jobs.data && jobs.data.jobs > jobs.data.items.length && (
          <Text size="xs" c="dimmed">
            {t("bulk.more", { n: jobs.data.jobs - jobs.data.items.length })}
          </Text>
        )}
        {!ahead && slot.runs === 0 && (
          <Text size="sm" c="dimmed">
            {t("week.norun")}
          </Text>
        )}
      </Section>
    </div>
  );
}
