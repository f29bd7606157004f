import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import { useLanguage } from "../i18n";
import type { Calendar } from "../lib/calendars";
import { useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { ErrorNote, Facts, Instant, PageHead, Section } from "../parts/basics";
import { CalendarForm } from "../parts/calendarform";
import { UsedBy, Years } from "../parts/calendaryears";
import { weekdayNames, YearView } from "../parts/yearview";

/** CalendarPage shows a calendar's days off. Admins can change them, or create a calendar. */
export default function CalendarPage({ name }: { name?: string }) {
  const { t } = useLanguage();
  useTitle(name ?? t("calendars.new"));
  const may = useMay();
  const calendar = useQuery({
    queryKey: ["calendar", name],
    queryFn: () => get("/api/v1/calendars/{name}", { path: { name: name ?? "" } }),
    enabled: name !== undefined,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  if (name === undefined) return <CalendarForm />;
  if (calendar.error) return <ErrorNote error={calendar.error} retry={() => void calendar.refetch()} />;
  if (!calendar.data) return null;
  return may.administer ? <CalendarForm calendar={calendar.data} /> : <Look calendar={calendar.data} />;
}

function Look({ calendar: c }: { calendar: Calendar }) {
  const { t, language } = useLanguage();
  const [year, setYear] = useState(() => new Date().getFullYear());
  const names = weekdayNames(language, "long");
  return (
    <>
      <PageHead title={c.name} sub={c.description} />
      <Facts
        of={[
          [t("calendars.weekdays"), c.weekdays.map((w) => names[w]).join(", ") || t("none")],
          [t("nav.jobs"), <UsedBy key="jobs" calendar={c} />],
          [
            t("calendars.changed"),
            <>
              <Instant at={c.updated_at} /> {c.updated_by}
            </>,
          ],
        ]}
      />
      <div className="below">
        <Section title={t("calendars.dates")}>
          <Years year={year} onYear={setYear} dates={c.dates} />
          <YearView year={year} dates={new Set(c.dates)} weekly={c.weekdays} />
        </Section>
      </div>
    </>
  );
}
