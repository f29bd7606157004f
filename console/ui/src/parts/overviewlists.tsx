// The lists of the overview. Each row has two lines, so that no element moves when a row changes.
import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "wouter";
import type { Answer, Run, Schemas } from "../api/client";
import { useT } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { clock } from "../lib/time";
import { Ago, Countdown, ErrorNote, reasonText, Section, State } from "./basics";
import { LiveList } from "./livelist";
import { RunTable } from "./runtable";

type Failure = Answer<"/api/v1/overview", "get">["recent_failures"][number];
type Upcoming = Answer<"/api/v1/upcoming", "get">["items"][number];

/** Event is a row: what it is about with a note at its right, and below it one line that says more. */
function Event({
  href,
  name,
  group,
  at,
  says,
}: {
  href: string;
  name: ReactNode;
  group: string;
  at: ReactNode;
  says: string;
}) {
  return (
    <li className="event-row">
      <span className="event-name">
        <Link href={href} data-row className="row-link">
          {name}
        </Link>{" "}
        <span className="faint">{group}</span>
      </span>
      <span className="faint num">{at}</span>
      <span className="event-says" title={says}>
        {says || " "}
      </span>
    </li>
  );
}

const None = ({ children }: { children: ReactNode }) => (
  <Text size="sm" c="dimmed">
    {children}
  </Text>
);

/** Failures lists the latest failed runs. of names the list, such as its filters. */
export function Failures({ items, of }: { items: Failure[]; of: string }) {
  const t = useT();
  const message = useMessage();
  return (
    <Section
      title={t("overview.failures")}
      right={
        <Link className="link" href="/runs?state=failed">
          {t("all")}
        </Link>
      }
    >
      <LiveList items={items} id={(r) => r.run_id} of={of}>
        {(rows) =>
          rows.length === 0 ? (
            <None>{t("overview.nofailures")}</None>
          ) : (
            <ul className="plain-list">
              {rows.map((r, i) => (
                <Event
                  key={i}
                  href={`/runs/${r.run_id}`}
                  name={
                    <>
                      <State state="failed" compact /> {r.job_name}
                    </>
                  }
                  group={r.group}
                  at={r.finished_at && <Ago at={r.finished_at} />}
                  says={[r.reason && reasonText(t, r.reason), message(r)].filter(Boolean).join(" · ")}
                />
              ))}
            </ul>
          )
        }
      </LiveList>
    </Section>
  );
}

/** Missed lists the latest entries of the missed ledger. Each one links to its job's page, which explains why the job did not run. */
export function Missed({ items, of, now }: { items: Schemas["RecentMissed"][]; of: string; now: Date }) {
  const t = useT();
  const explain = useExplain();
  return (
    <Section title={t("overview.latestmissed")}>
      <LiveList items={items} id={(m) => `${m.job_id} ${m.at} ${m.last}`} of={of}>
        {(rows) => (
          <ul className="plain-list">
            {rows.map((m, i) => (
              <Event
                key={i}
                href={`/jobs/${m.job_id}?why=${encodeURIComponent(m.last)}`}
                name={
                  <>
                    <span className="warn">{t("grid.missed", { n: m.count })}</span> {m.job_name}
                  </>
                }
                group={m.group}
                at={clock(m.last, now)}
                says={[m.last !== m.first && `${clock(m.first, now)} – ${clock(m.last, now)}`, explain(m.why)]
                  .filter(Boolean)
                  .join(" · ")}
              />
            ))}
          </ul>
        )}
      </LiveList>
    </Section>
  );
}

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
