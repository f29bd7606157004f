import { Button, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import { useLanguage } from "../i18n";
import { useFilters, useNow, useTitle } from "../lib/hooks";
import { viewerZone } from "../lib/time";
import { addDays, isoDay, monday, parseDay, slots } from "../lib/week";
import { ErrorNote, PageHead } from "../parts/basics";
import { GroupPick } from "../parts/filters";
import { WeekGrid } from "../parts/weekgrid";
import { WeekHour } from "../parts/weekhour";

export default function Week() {
  const { t, language } = useLanguage();
  useTitle(t("nav.week"));
  const [f, setF] = useFilters(["week", "group"] as const);
  const thisWeek = monday(useNow(60_000));
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
          <WeekGrid
            week={week}
            days={days}
            now={new Date(query.data.now)}
            language={language}
            chosen={chosen}
            choose={setChosen}
          />
          <Group gap="xs" mt={6} className="faint small">
            <span>{t("week.legend")}</span>
            <span className="load-legend" aria-hidden="true">
              {[0, 1, 2, 3, 4, 5].map((n) => (
                <i key={n} className={`load-${n}`} />
              ))}
            </span>
            {query.data.estimated && <span>{t("week.estimated")}</span>}
          </Group>
          {slot ? (
            <WeekHour slot={slot} now={new Date(query.data.now)} group={f.group} />
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
