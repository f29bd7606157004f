import { ActionIcon, Button, Menu, Text } from "@mantine/core";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { call } from "../api/client";
import { useLanguage } from "../i18n";
import { newCalendar, useCalendars, type Calendar } from "../lib/calendars";
import { useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { isoDay } from "../lib/week";
import { Confirm, useRefresh } from "../parts/actions";
import { Empty, ErrorNote, Icon, icons, Instant, PageHead, Snippet } from "../parts/basics";
import { calendarCommands } from "../parts/snippets";
import { weekdayNames } from "../parts/yearview";

/** Calendars lists the calendars, which are named sets of days off. The week of all schedules is another page. */
export default function Calendars() {
  const { t, language } = useLanguage();
  useTitle(t("nav.calendars"));
  useListKeys();
  const may = useMay();
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const [deleting, setDeleting] = useState<Calendar>();
  const list = useCalendars();
  const names = weekdayNames(language, "short");
  const today = isoDay(new Date());
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
          <table className="list">
            <thead>
              <tr>
                <th>{t("field.name")}</th>
                <th>{t("calendars.weekdays")}</th>
                <th className="mid">{t("calendars.dates")}</th>
                <th className="mid">{t("calendars.next")}</th>
                <th>{t("nav.jobs")}</th>
                <th className="wide">{t("calendars.changed")}</th>
                {may.administer && (
                  <th>
                    <span className="sr-only">{t("actions")}</span>
                  </th>
                )}
              </tr>
            </thead>
            <tbody>
              {list.data.map((c) => (
                <tr key={c.name}>
                  <td className="grow">
                    <div className="clamp one">
                      <Link className="row-link" data-row href={`/calendars/${c.name}`} title={c.name}>
                        {c.name}
                      </Link>
                    </div>
                    <div className="clamp one faint" title={c.description}>
                      {c.description}
                    </div>
                    {c.dates.length > 0 && (
                      <div className="phone-only">
                        <div className="clamp one faint">
                          {t("calendars.dates")}: {c.dates.length}{" "}
                          <span className="num">{next(c) && `· ${next(c)}`}</span>
                        </div>
                      </div>
                    )}
                  </td>
                  <td>
                    <div className="clamp" title={c.weekdays.map((w) => names[w]).join(", ")}>
                      {c.weekdays.map((w) => names[w]).join(", ") || <span className="faint">–</span>}
                    </div>
                  </td>
                  <td className="mid num">{c.dates.length}</td>
                  <td className="mid num">{next(c) ?? <span className="faint">–</span>}</td>
                  <td className="num">
                    {c.jobs > 0 ? (
                      <Link
                        className="link"
                        href={`/jobs?calendar=${c.name}`}
                        aria-label={t("calendars.usedby", { n: c.jobs })}
                      >
                        {c.jobs}
                      </Link>
                    ) : (
                      <span className="faint">–</span>
                    )}
                  </td>
                  <td className="wide num">
                    <Instant at={c.updated_at} /> <span className="faint">{c.updated_by}</span>
                  </td>
                  {may.administer && (
                    <td className="row-actions">
                      <Menu position="bottom-end">
                        <Menu.Target>
                          <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name: c.name })}>
                            ⋯
                          </ActionIcon>
                        </Menu.Target>
                        <Menu.Dropdown>
                          <Menu.Item onClick={() => navigate(`/calendars/${c.name}`)}>{t("edit")}</Menu.Item>
                          <Menu.Item color="red" onClick={() => setDeleting(c)}>
                            {t("delete")}
                          </Menu.Item>
                        </Menu.Dropdown>
                      </Menu>
                    </td>
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {deleting && (
        <Confirm
          title={t("calendars.delete", { name: deleting.name })}
          text={t("calendars.delete.text")}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/calendars/{name}", { path: { name: deleting.name } });
            await refresh("calendars");
          }}
        />
      )}
    </>
  );
}
