import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, post } from "../api/client";
import { useLanguage } from "../i18n";
import type { Calendar } from "../lib/calendars";
import { mostDates, weekdays, type Weekday } from "../lib/daysoff";
import { leaveNow, useLeaving } from "../lib/leaving";
import { useRefresh } from "./actions";
import { Copy, errorText, PageHead, Section } from "./basics";
import { UsedBy, Years } from "./calendaryears";
import { Chips } from "./filters";
import { AskLeaving, FormBar } from "./formbar";
import { PasteDates } from "./pastedates";
import { weekdayNames, YearView } from "./yearview";

const fields = ["name", "description", "weekdays", "dates"];

/** CalendarForm changes a calendar, or creates one. */
export function CalendarForm({ calendar }: { calendar?: Calendar }) {
  const { t, language } = useLanguage();
  const refresh = useRefresh();
  const [name, setName] = useState(calendar?.name ?? "");
  const [description, setDescription] = useState(calendar?.description ?? "");
  const [weekly, setWeekly] = useState<Weekday[]>(calendar?.weekdays ?? []);
  const [dates, setDates] = useState<string[]>(calendar?.dates ?? []);
  const [year, setYear] = useState(() => new Date().getFullYear());
  const names = weekdayNames(language, "long");
  const draft = JSON.stringify([name, description, weekly, dates]);
  const [base] = useState(draft);
  const leaving = useLeaving(draft !== base);
  const chosen = new Set(dates);
  const change = (days: string[], off: boolean) =>
    setDates((before) => {
      const next = new Set(before);
      for (const d of days)
        if (off) next.add(d);
        else next.delete(d);
      return [...next].sort();
    });
  const save = useMutation({
    mutationFn: () => {
      const days = { description, weekdays: weekly, dates };
      return calendar
        ? call("put", "/api/v1/calendars/{name}", {
            path: { name: calendar.name },
            body: days,
            version: calendar.version,
          })
        : post("/api/v1/calendars", { body: { name, ...days } });
    },
    onSuccess: async () => {
      await refresh("calendars", "jobs", "job");
      leaveNow("/calendars");
    },
    onError: () => setTimeout(() => document.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus(), 50),
  });
  const error = save.error instanceof ApiError ? save.error : undefined;
  const others = error?.elsewhere(fields) ?? [];
  return (
    <form
      className="calendar-form"
      noValidate
      onSubmit={(e) => {
        e.preventDefault();
        save.mutate();
      }}
    >
      <PageHead title={calendar?.name ?? t("calendars.new")} sub={calendar && <UsedBy calendar={calendar} />} />
      <Stack gap="sm" maw={640} mb="lg">
        {!calendar && (
          <TextInput
            label={t("field.name")}
            description={t("calendars.name.help")}
            inputWrapperOrder={["label", "input", "description", "error"]}
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
            error={error?.at("name")}
            maxLength={63}
            required
            autoFocus
          />
        )}
        <TextInput
          label={t("field.description")}
          value={description}
          onChange={(e) => setDescription(e.currentTarget.value)}
          error={error?.at("description")}
          maxLength={1024}
        />
      </Stack>
      <Section title={t("calendars.weekdays")}>
        <Chips
          label={t("calendars.weekdays")}
          values={weekdays}
          value={weekly.join(",")}
          onChange={(v) => setWeekly(weekdays.filter((w) => v.split(",").includes(w)))}
          name={(w) => names[w]}
        />
        {error?.at("weekdays") && (
          <Text size="xs" c="var(--bad)" mt={4}>
            {error.at("weekdays")}
          </Text>
        )}
      </Section>
      <Section
        title={t("calendars.dates")}
        right={
          dates.length > 0 && (
            <Group gap={6}>
              <Text size="xs" c={dates.length > mostDates ? "var(--bad)" : "dimmed"}>
                {t("calendars.count", { n: dates.length, most: mostDates })}
              </Text>
              <Copy text={dates.join("\n")} label={t("calendars.copy")} />
            </Group>
          )
        }
      >
        {error?.at("dates") && (
          <Text size="xs" c="var(--bad)" mb={4}>
            {error.at("dates")}
          </Text>
        )}
        <div className="columns wide-left">
          <div>
            <Years year={year} onYear={setYear} dates={dates} />
            <YearView year={year} dates={chosen} weekly={weekly} choose={change} />
            <Group gap="sm" mt={6}>
              <Text size="xs" c="dimmed" className="keys-hint">
                {t("calendars.keys")}
              </Text>
              {dates.some((d) => d.startsWith(String(year))) && (
                <button
                  type="button"
                  className="link"
                  onClick={() =>
                    change(
                      dates.filter((d) => d.startsWith(String(year))),
                      false,
                    )
                  }
                >
                  {t("calendars.clear", { year })}
                </button>
              )}
            </Group>
          </div>
          <PasteDates
            known={chosen}
            onAdd={(found) => {
              change(found, true);
              const first = found.find((d) => Number(d.slice(0, 4)) >= year) ?? found[0];
              if (first) setYear(Number(first.slice(0, 4)));
            }}
          />
        </div>
      </Section>
      <FormBar
        fault={
          save.error &&
          (others.length > 0
            ? others.map((o) => <div key={o}>{o}</div>)
            : error?.problem.errors?.length
              ? t("form.fields")
              : errorText(t, save.error))
        }
      >
        <Button type="submit" loading={save.isPending}>
          {t("save")}
        </Button>
        <Button variant="subtle" color="gray" onClick={() => leaveNow("/calendars")}>
          {t("cancel")}
        </Button>
        {calendar && calendar.jobs > 0 && (
          <Text size="xs" c="dimmed">
            {t("calendars.effect", { n: calendar.jobs })}
          </Text>
        )}
      </FormBar>
      <AskLeaving go={leaving.go} stay={leaving.stay} />
    </form>
  );
}
