// The lists of the overview below what needs attention.
import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Answer, Run } from "../api/client";
import { useT } from "../i18n";
import { clock } from "../lib/time";
import { Countdown, ErrorNote, Section } from "./basics";
import { LiveList } from "./livelist";
import { RunTable } from "./runtable";

type Upcoming = Answer<"/api/v1/upcoming", "get">["items"][number];

const None = ({ children }: { children: ReactNode }) => (
  <Text size="sm" c="dimmed">
    {children}
  </Text>
);

/** UpcomingFires lists the next fire times. */
export function UpcomingFires({ items, of, error, now }: { items: Upcoming[]; of: string; error: unknown; now: Date }) {
  const t = useT();
  // A job that fires every second would fill the list, so each job is listed once with its next fire time.
  const seen = new Set<number>();
  const next = items.filter((u) => !seen.has(u.job_id) && seen.add(u.job_id)).slice(0, 10);
  return (
    <Section title={t("overview.upcoming")}>
      {error != null && <ErrorNote error={error} />}
      <LiveList items={next} id={(u) => String(u.job_id)} of={of}>
        {(rows) =>
          rows.length === 0 ? (
            <None>{t("overview.noupcoming")}</None>
          ) : (
            <ul className="plain-list">
              {rows.map((u, i) => (
                <li key={i} className="event-row">
                  <span className="event-name">
                    <span className="num">{clock(u.fire_time, now)}</span>{" "}
                    <Link href={`/jobs/${u.job_id}`} className="plain-link">
                      {u.job_name}
                    </Link>
                  </span>
                  <span className="num">
                    <Countdown at={u.due_at} />
                  </span>
                </li>
              ))}
            </ul>
          )
        }
      </LiveList>
    </Section>
  );
}

/** Running lists the runs that are running now. */
export function Running({ items, of, now }: { items: Run[]; of: string; now: Date }) {
  const t = useT();
  return (
    <Section title={t("overview.running")}>
      <LiveList items={items} id={(r) => r.id} of={of}>
        {(rows, gone) =>
          rows.length ? <RunTable runs={rows} now={now} gone={gone} /> : <None>{t("overview.norunning")}</None>
        }
      </LiveList>
    </Section>
  );
}
