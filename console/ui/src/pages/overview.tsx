import { Anchor, Button, SegmentedControl, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, search, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { useFilters, useListKeys, useNow, useTitle } from "../lib/hooks";
import { useStream } from "../lib/live";
import { clock, dateTime, shortDuration } from "../lib/time";
import { Ago, Countdown, Empty, ErrorNote, Icon, icons, PageHead, reasonText, Section, State } from "../parts/basics";
import { GroupPick } from "../parts/filters";
import { RunTable } from "../parts/runtable";
import { Tile, Tiles, useStale } from "../parts/tiles";

const spans = {
  "1h": { ms: 3_600_000, step: "1m", go: "1h" },
  "24h": { ms: 86_400_000, step: "30m", go: "24h" },
  "7d": { ms: 7 * 86_400_000, step: "3h", go: "168h" },
} as const;
type Span = keyof typeof spans;

export default function Overview() {
  const t = useT();
  const message = useMessage();
  useTitle(t("nav.overview"));
  useListKeys();
  const now = useNow();
  const [f, setF] = useFilters(["span", "group"] as const);
  const span: Span = f.span in spans ? (f.span as Span) : "24h";
  const group = f.group || undefined;
  const minute = Math.floor(now.getTime() / 60_000);
  const from = new Date(minute * 60_000 - spans[span].ms).toISOString();
  const [live, setLive] = useState(true);
  const client = useQueryClient();
  const every = (ms: number) => (live ? ms : false);
  const overview = useQuery({
    queryKey: ["overview", span, group],
    queryFn: () => get("/api/v1/overview", { query: { from, group } }),
    refetchInterval: every(60_000),
    placeholderData: (before) => before,
  });
  const status = useStream(live ? `/api/v1/overview/stream${search({ span: spans[span].go, group })}` : undefined, {
    overview: (data) => client.setQueryData(["overview", span, group], JSON.parse(data)),
  });
  const report = useQuery({
    queryKey: ["report", span, group],
    queryFn: () => get("/api/v1/reports/runs", { query: { from, group, step: spans[span].step } }),
    refetchInterval: every(30_000),
  });
  const running = useQuery({
    queryKey: ["runs", "running", group],
    queryFn: () => get("/api/v1/runs", { query: { state: ["running", "retrying"] as never, group, limit: 10 } }),
    refetchInterval: every(3000),
  });
  const upcoming = useQuery({
    queryKey: ["upcoming", group],
    queryFn: () => get("/api/v1/upcoming", { query: { within: "1h", group, limit: 200 } }),
    refetchInterval: every(5000),
  });
  const o = overview.data;
  const stale = useStale(overview, live && status !== "live");
  if (overview.error && !o) return <ErrorNote error={overview.error} retry={() => void overview.refetch()} />;

  // A job that fires every second would fill the list, so each job is listed once with its next fire time.
  const seen = new Set<number>();
  const next = (upcoming.data?.items ?? []).filter((u) => !seen.has(u.job_id) && seen.add(u.job_id)).slice(0, 10);
  return (
    <>
      <PageHead title={t("nav.overview")}>
        <Text size="xs" c="dimmed" role="status">
          {t(live ? (status === "live" ? "live.on" : "live.connecting") : "live.off")}
        </Text>
        <Button
          size="xs"
          variant="default"
          aria-pressed={!live}
          onClick={() => {
            setLive(!live);
            if (!live) for (const q of [overview, report, running, upcoming]) void q.refetch();
          }}
          leftSection={<Icon d={live ? icons.pause : icons.play} size={14} />}
        >
          {t(live ? "live.pause" : "live.go")}
        </Button>
        <GroupPick value={f.group} onChange={(g) => setF({ group: g })} />
        <SegmentedControl
          size="xs"
          value={span}
          onChange={(s) => setF({ span: s })}
          data={Object.keys(spans).map((s) => ({ value: s, label: t(`span.${s as Span}`) }))}
          aria-label={t("overview.span")}
        />
      </PageHead>
      {o && (
        <>
          <Tiles stale={stale} at={overview.dataUpdatedAt}>
            <Tile
              name={t("overview.failed")}
              value={count(o.counts.failed)}
              bad={o.counts.failed > 0}
              href={`/runs?state=failed&from=${o.from}`}
              note={Object.entries(o.counts.reasons)
                .filter(([r]) => !endedOnPurpose.has(r))
                .sort((a, b) => b[1] - a[1])
                .slice(0, 2)
                .map(([r, n]) => `${reasonText(t, r)} ${n}`)
                .join(" · ")}
            />
            <Tile name={t("overview.missed")} value={count(o.missed)} bad={o.missed > 0} />
            <Tile
              name={t("overview.rate")}
              value={o.counts.success_rate == null ? "–" : percent(o.counts.success_rate)}
              note={t("overview.runs", { n: count(o.counts.runs) })}
            />
            <Tile
              name={t("overview.late")}
              value={o.counts.lateness_p50_ms == null ? "–" : shortDuration(o.counts.lateness_p50_ms)}
              note={o.counts.lateness_p99_ms == null ? "" : `p99 ${shortDuration(o.counts.lateness_p99_ms)}`}
            />
            <Tile
              name={t("overview.now")}
              value={o.now.running}
              note={t("overview.queued", { q: o.now.queued, r: o.now.retrying, h: o.now.held })}
              href="/runs?state=queued,running,retrying"
            />
            <Tile
              name={t("overview.instances")}
              value={o.now.instances}
              bad={o.now.instances === 0}
              note={
                t("overview.slots", { used: o.now.slots_used, n: o.now.slots }) +
                (o.now.draining ? ` · ${t("overview.draining", { n: o.now.draining })}` : "")
              }
              href="/executors"
            />
          </Tiles>
          {o.now.jobs === 0 && (
            <Empty title={t("jobs.none")}>
              <Text size="sm">{t("jobs.teach")}</Text>
              <Anchor component={Link} href="/jobs/new" size="sm">
                {t("jobs.first")}
              </Anchor>
            </Empty>
          )}
          {report.data && report.data.points.length > 0 && (
            <Section title={t("overview.over")}>
              <Bars points={report.data.points} />
            </Section>
          )}
          <div className="columns">
            <div>
              <Section
                title={t("overview.failures")}
                right={
                  <Link className="link" href="/runs?state=failed">
                    {t("all")}
                  </Link>
                }
              >
                {o.recent_failures.length === 0 ? (
                  <Text size="sm" c="dimmed">
                    {t("overview.nofailures")}
                  </Text>
                ) : (
                  <ul className="plain-list">
                    {o.recent_failures.slice(0, o.recent_missed.length > 0 ? 5 : 7).map((r) => (
                      <li key={r.run_id}>
                        <Link href={`/runs/${r.run_id}`} data-row className="row-link">
                          <State state="failed" reason={r.reason} /> {r.job_name}
                        </Link>{" "}
                        <span className="faint">
                          {r.group}
                          {r.finished_at && (
                            <>
                              {" "}
                              · <Ago at={r.finished_at} />
                            </>
                          )}
                        </span>
                        {r.message && <div className="message one-line">{message(r)}</div>}
                      </li>
                    ))}
                  </ul>
                )}
              </Section>
              {o.recent_missed.length > 0 && <Missed entries={o.recent_missed} now={now} />}
            </div>
            <Section title={t("overview.upcoming")}>
              {upcoming.error && <ErrorNote error={upcoming.error} />}
              {next.length === 0 ? (
                <Text size="sm" c="dimmed">
                  {t("overview.noupcoming")}
                </Text>
              ) : (
                <ul className="plain-list">
                  {next.map((u) => (
                    <li key={u.job_id}>
                      <span className="num">{clock(u.fire_time, now)}</span>{" "}
                      <Link href={`/jobs/${u.job_id}`} className="plain-link">
                        {u.job_name}
                      </Link>{" "}
                      <Countdown at={u.due_at} />
                    </li>
                  ))}
                </ul>
              )}
            </Section>
          </div>
          <Section title={t("overview.running")}>
            {running.data?.items.length ? (
              <RunTable runs={running.data.items} now={now} />
            ) : (
              <Text size="sm" c="dimmed">
                {t("overview.norunning")}
              </Text>
            )}
          </Section>
        </>
      )}
    </>
  );
}

/** Reasons of runs that did not fail: they were cancelled or skipped. */
const endedOnPurpose = new Set(["killed", "discarded", "covered", "job_deleted"]);
const count = (n: number): string => n.toLocaleString("en-US");
const percent = (rate: number): string => `${(Math.floor(rate * 10_000) / 100).toFixed(rate === 1 ? 0 : 2)}%`;

/** Missed lists the latest entries of the missed ledger. Each one links to its job's page, which explains why the job did not run. */
function Missed({ entries, now }: { entries: Schemas["RecentMissed"][]; now: Date }) {
  const t = useT();
  const explain = useExplain();
  return (
    <Section title={t("overview.latestmissed")}>
      <ul className="plain-list">
        {entries.slice(0, 4).map((m) => (
          <li key={`${m.job_id} ${m.at} ${m.last}`}>
            <Link href={`/jobs/${m.job_id}?why=${encodeURIComponent(m.last)}`} data-row className="row-link">
              <span className="warn">{t("grid.missed", { n: m.count })}</span> {m.job_name}
            </Link>{" "}
            <span className="faint">
              {m.group} ·{" "}
              <span className="num">
                {clock(m.first, now)}
                {m.last !== m.first && <> – {clock(m.last, now)}</>}
              </span>
            </span>
            <div className="message one-line" title={explain(m.why)}>
              {explain(m.why)}
            </div>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** Bars shows runs by outcome over time. The numbers are also in each bar's title and, for screen readers, in a table. */
function Bars({ points }: { points: Schemas["ReportPoint"][] }) {
  const t = useT();
  const [width, height] = [720, 90];
  const most = Math.max(1, ...points.map((p) => p.runs));
  const w = width / points.length;
  const y = (n: number) => (n / most) * (height - 4);
  return (
    <figure className="bars">
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
        {points.map((p, i) => {
          const rest = p.cancelled + p.skipped;
          let at = height;
          return (
            <g key={p.at}>
              <title>{`${dateTime(p.at)}: ${t("state.succeeded")} ${p.succeeded}, ${t("state.failed")} ${p.failed}, ${t("overview.rest")} ${rest}`}</title>
              <rect x={i * w} y={0} width={w} height={height} fill="transparent" />
              {(
                [
                  ["bar-failed", p.failed],
                  ["bar-rest", rest],
                  ["bar-succeeded", p.succeeded],
                ] as const
              ).map(([c, n]) => {
                if (!n) return null;
                const h = Math.max(y(n), 2);
                at -= h;
                return (
                  <rect key={c} className={c} x={i * w + w * 0.1} y={Math.max(0, at)} width={w * 0.8} height={h} />
                );
              })}
            </g>
          );
        })}
      </svg>
      <figcaption>
        <span>{dateTime(points[0]?.at ?? "").slice(5, 16)}</span>
        <span className="legend">
          <i className="bar-succeeded" />
          {t("state.succeeded")} <i className="bar-failed" />
          {t("state.failed")} <i className="bar-rest" />
          {t("overview.rest")} · {t("overview.most", { n: count(most) })}
        </span>
        <span>{dateTime(points.at(-1)?.at ?? "").slice(5, 16)}</span>
      </figcaption>
      <div className="sr-only">
        <table>
          <thead>
            <tr>
              <th>{t("run.fire")}</th>
              <th>{t("state.succeeded")}</th>
              <th>{t("state.failed")}</th>
              <th>{t("overview.rest")}</th>
            </tr>
          </thead>
          <tbody>
            {points
              .filter((p) => p.runs)
              .map((p) => (
                <tr key={p.at}>
                  <td>{dateTime(p.at)}</td>
                  <td>{p.succeeded}</td>
                  <td>{p.failed}</td>
                  <td>{p.cancelled + p.skipped}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}
