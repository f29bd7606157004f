import { Button, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useRef, useState, type KeyboardEvent } from "react";
import { Link } from "wouter";
import { get } from "../api/client";
import { useLanguage } from "../i18n";
import { useFilters, useTitle } from "../lib/hooks";
import { dateTime, viewerZone } from "../lib/time";
import { addDays, isoDay, loadClass, monday, parseDay, short, slots, type Slot } from "../lib/week";
import { ErrorNote, errorText, PageHead, Section } from "../parts/basics";
import { GroupPick } from "../parts/filters";

export default function Week() {
  const { t, language } = useLanguage();
  useTitle(t("nav.week"));
  const [f, setF] = useFilters(["week", "group"] as const);
  const thisWeek = monday(new Date());
  const week = monday(parseDay(f.week) ?? thisWeek);
  const end = addDays(week, 7);
  const query = useQuery({
    queryKey: ["week", isoDay(week), f.group],
    queryFn: ({ signal }) =>
      get("/api/v1/calendar", {
        query: { from: week.toISOString(), to: end.toISOString(), group: f.group || undefined },
        signal,
      }),
    placeholderData: (before) => before,
    refetchInterval: 60_000,
  });
  const [chosen, setChosen] = useState<[day: number, hour: number]>();
  const go = (to: Date) => {
    setChosen(undefined);
    setF({ week: isoDay(to) === isoDay(thisWeek) ? "" : isoDay(to) });
  };
  const days = slots(week, query.data?.cells ?? []);
  const slot = chosen && days[chosen[0]]?.[chosen[1]];
  return (
    <>
      <PageHead title={t("nav.week")} sub={t("week.zone", { zone: viewerZone() })}>
        <GroupPick
          value={f.group}
          onChange={(group) => {
            setChosen(undefined);
            setF({ group });
          }}
        />
        <Group gap={4} wrap="nowrap">
          <Button size="xs" variant="default" onClick={() => go(addDays(week, -7))} aria-label={t("week.before")}>
            ‹
          </Button>
          <Button size="xs" variant="default" onClick={() => go(thisWeek)} disabled={isoDay(week) === isoDay(thisWeek)}>
            {t("week.this")}
          </Button>
          <Button size="xs" variant="default" onClick={() => go(addDays(week, 7))} aria-label={t("week.after")}>
            ›
          </Button>
        </Group>
      </PageHead>
      {query.error && <ErrorNote error={query.error} retry={() => void query.refetch()} />}
      {query.data && (
        <>
          <Grid
            week={week}
            days={days}
            now={new Date(query.data.now)}
            language={language}
            chosen={chosen}
            choose={setChosen}
          />
          <Group gap="xs" mt={6} className="faint" fz={12}>
            <span>{t("week.legend")}</span>
            <span className="load-legend" aria-hidden="true">
              {[0, 1, 2, 3, 4, 5].map((n) => (
                <i key={n} className={`load-${n}`} />
              ))}
            </span>
            {query.data.estimated && <span>{t("week.estimated")}</span>}
          </Group>
          {slot ? (
            <Hour slot={slot} now={new Date(query.data.now)} group={f.group} />
          ) : (
            <Text size="sm" c="dimmed" mt="md">
              {t("week.choose")}
            </Text>
          )}
        </>
      )}
    </>
  );
}

/** Grid is a table of hours and days. Arrow keys move the focus in it. */
function Grid({
  week,
  days,
  now,
  language,
  chosen,
  choose,
}: {
  week: Date;
  days: (Slot | undefined)[][];
  now: Date;
  language: "en" | "zh";
  chosen?: [number, number];
  choose: (at: [number, number]) => void;
}) {
  const { t } = useLanguage();
  const table = useRef<HTMLTableElement>(null);
  const most = Math.max(1, ...days.flat().map((s) => (s ? s.planned + s.runs : 0)));
  const names = days.map((_, i) =>
    new Intl.DateTimeFormat(language === "zh" ? "zh-CN" : "en-GB", {
      weekday: "short",
      day: "numeric",
      month: "numeric",
    }).formatToParts(addDays(week, i)),
  );
  const today = isoDay(now);
  const hour = now.getHours();
  const start: [number, number] = chosen ?? [0, 0];
  const move = (e: KeyboardEvent) => {
    const at = (e.target as HTMLElement).dataset.at?.split(",").map(Number);
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (!at || !by) return;
    e.preventDefault();
    table.current
      ?.querySelector<HTMLElement>(`[data-at="${(at[0] ?? 0) + (by[0] ?? 0)},${(at[1] ?? 0) + (by[1] ?? 0)}"]`)
      ?.focus();
  };
  return (
    <table className="week" ref={table} onKeyDown={move}>
      <caption className="sr-only">{t("week.caption")}</caption>
      <thead>
        <tr>
          <th>
            <span className="sr-only">{t("cron.hour")}</span>
          </th>
          {names.map((n, i) => (
            <th key={i} scope="col" className={isoDay(addDays(week, i)) === today ? "week-today" : undefined}>
              {n.map((p, k) => (
                <span key={k} className={p.type === "weekday" ? "week-day" : undefined}>
                  {p.type === "literal" && k > 0 && n[k - 1]?.type === "weekday" ? " " : p.value}
                </span>
              ))}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {Array.from({ length: 24 }, (_, h) => (
          <tr key={h}>
            <th scope="row" className="num">
              {String(h).padStart(2, "0")}
            </th>
            {days.map((d, i) => {
              const s = d[h];
              if (!s) return <td key={i} />;
              const n = s.planned + s.runs;
              const past = Date.parse(s.from) + 3_600_000 <= now.getTime();
              const words = [
                dateTime(s.from).slice(0, 16),
                s.runs > 0 && t("week.runs", { n: s.runs }),
                s.failed > 0 && t("week.failed", { n: s.failed }),
                (!past || s.planned > 0) && t("week.planned", { n: s.planned }),
              ]
                .filter(Boolean)
                .join(" · ");
              return (
                <td key={i}>
                  <button
                    type="button"
                    data-at={`${i},${h}`}
                    tabIndex={i === start[0] && h === start[1] ? 0 : -1}
                    aria-pressed={chosen?.[0] === i && chosen[1] === h}
                    aria-label={words}
                    title={words}
                    onClick={() => choose([i, h])}
                    className={`slot load-${loadClass(n, most)}${past ? " slot-past" : ""}${isoDay(addDays(week, i)) === today && h === hour ? " slot-now" : ""}`}
                  >
                    {n > 0 ? short(n) : ""}
                    {s.failed > 0 && (
                      <span className="slot-failed" aria-hidden="true">
                        !
                      </span>
                    )}
                  </button>
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Hour shows the content of a cell: its past runs, and the jobs that will fire. */
function Hour({ slot, now, group }: { slot: Slot; now: Date; group: string }) {
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
