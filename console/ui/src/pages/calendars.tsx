import { Button, Text } from "@mantine/core";
import { Link, useLocation } from "wouter";
import { call } from "../api/client";
import { useLanguage, useT } from "../i18n";
import { newCalendar, useCalendars, type Calendar } from "../lib/calendars";
import { useListKeys, useNow, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { isoDay } from "../lib/week";
import { Empty, ErrorNote, Instant, PageHead, Snippet } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { ListTable } from "../parts/listtable";
import { calendarCommands } from "../parts/snippets";
import { weekdayNames } from "../parts/yearview";

const none = <span className="faint">–</span>;

/** Calendars lists the calendars, which are named sets of days off. The week of all schedules is another page. */
export default function Calendars() {
  const { t, language } = useLanguage();
  useTitle(t("nav.calendars"));
  useListKeys();
  const may = useMay();
  const [, navigate] = useLocation();
  const list = useCalendars();
  const names = weekdayNames(language, "short");
  const today = isoDay(useNow(60_000));
  const weekdays = (c: Calendar) => c.weekdays.map((w) => names[w]).join(language === "zh" ? "、" : ", ");
  const next = (c: Calendar) => c.dates.find((d) => d >= today);
  const add = may.administer && (
    <Button
      size="xs"
      w="fit-content"
      component={Link}
      href={`/calendars/${newCalendar}`}
      leftSection={<Icon d={icons.plus} size={14} />}
    >
      {t("calendars.new")}
    </Button>
  );
  return (
    <>
      <PageHead title={t("nav.calendars")} sub={t("calendars.what")}>
        {add}
      </PageHead>
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data?.length === 0 && (
        <Empty title={t("calendars.none")}>
          <Text size="sm">{t("calendars.teach")}</Text>
          {add}
          <details>
            <summary>{t("calendars.cli")}</summary>
            <Snippet code={calendarCommands} />
          </details>
        </Empty>
      )}
      {!!list.data?.length && (
        <div className="table-box">
          <ListTable
            items={list.data}
            id={(c) => c.name}
            name={(c) => c.name}
            columns={[
              {
                head: t("field.name"),
                className: "grow",
                cell: (c) => <Name calendar={c} next={next(c)} weekdays={weekdays(c)} />,
              },
              {
                head: t("calendars.weekdays"),
                className: "mid keep",
                cell: (c) => (
                  <div className="clamp" title={weekdays(c)}>
                    {weekdays(c) || none}
                  </div>
                ),
              },
              { head: t("calendars.dates"), className: "mid num", cell: (c) => c.dates.length },
              { head: t("calendars.next"), className: "mid num", cell: (c) => next(c) ?? none },
              {
                head: t("nav.jobs"),
                className: "num",
                cell: (c) =>
                  c.jobs > 0 ? (
                    <Link
                      className="link"
                      href={`/jobs?calendar=${c.name}`}
                      aria-label={t("calendars.usedby", { n: c.jobs })}
                    >
                      {c.jobs}
                    </Link>
                  ) : (
                    none
                  ),
              },
              {
                head: t("calendars.changed"),
                className: "wide num",
                cell: (c) => (
                  <>
                    <Instant at={c.updated_at} /> <span className="faint">{c.updated_by}</span>
                  </>
                ),
              },
            ]}
            actions={
              may.administer ? (c) => [{ label: t("edit"), run: () => navigate(`/calendars/${c.name}`) }] : undefined
            }
            removal={
              may.administer
                ? {
                    title: (c) => t("calendars.delete", { name: c.name }),
                    text: t("calendars.delete.text"),
                    run: (c) => call("delete", "/api/v1/calendars/{name}", { path: { name: c.name } }),
                    refresh: "calendars",
                  }
                : undefined
            }
          />
        </div>
      )}
    </>
  );
}

/** Name is a calendar's name with its description. In a narrow table, it also has the days off, which are columns of a wide one. */
function Name({ calendar: c, next, weekdays }: { calendar: Calendar; next?: string; weekdays: string }) {
  const t = useT();
  return (
    <>
      <div className="clamp one">
        <Link className="row-link" data-row href={`/calendars/${c.name}`} title={c.name}>
          {c.name}
        </Link>
      </div>
      <div className="clamp one faint" title={c.description}>
        {c.description}
      </div>
      <div className="phone-only">
        <div className="clamp one faint">
          {weekdays && <span className="phone-too">{weekdays} · </span>}
          {t("calendars.days", { n: c.dates.length })} <span className="num">{next && `· ${next}`}</span>
        </div>
      </div>
    </>
  );
}
