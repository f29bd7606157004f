import { Button, FileButton, Group, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { ApiError, call, get, post } from "../api/client";
import { useLanguage } from "../i18n";
import type { Calendar } from "../lib/calendars";
import { mostDates, parseDates, weekdays, type Weekday } from "../lib/daysoff";
import { useTitle } from "../lib/hooks";
import { leaveNow, useLeaving } from "../lib/leaving";
import { useMay } from "../lib/me";
import { useRefresh } from "../parts/actions";
import { Copy, ErrorNote, errorText, Facts, Instant, PageHead, Section } from "../parts/basics";
import { Chips } from "../parts/filters";
import { AskLeaving, FormBar } from "../parts/formbar";
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
  if (name === undefined) return <Form />;
  if (calendar.error) return <ErrorNote error={calendar.error} retry={() => void calendar.refetch()} />;
  if (!calendar.data) return null;
  return may.administer ? <Form calendar={calendar.data} /> : <Look calendar={calendar.data} />;
}

function UsedBy({ calendar }: { calendar: Calendar }) {
  const { t } = useLanguage();
  return calendar.jobs > 0 ? (
    <Link className="link" href={`/jobs?calendar=${calendar.name}`}>
      {t("calendars.usedby", { n: calendar.jobs })}
    </Link>
  ) : (
    <span>{t("calendars.unused")}</span>
  );
}

/** Years selects a year: the previous one, the next one, or one with dates. */
function Years({ year, onYear, dates }: { year: number; onYear: (y: number) => void; dates: string[] }) {
  const { t } = useLanguage();
  const counts = new Map<string, number>();
  for (const d of dates) counts.set(d.slice(0, 4), (counts.get(d.slice(0, 4)) ?? 0) + 1);
  return (
    <Group gap="xs" mb="xs">
      <Group gap={4} wrap="nowrap">
        <Button
          size="compact-sm"
          variant="default"
          onClick={() => onYear(year - 1)}
          disabled={year <= 1970}
          aria-label={t("calendars.before")}
        >
          ‹
        </Button>
        <Text fw={600} px={6} className="num" role="status">
          {year}
        </Text>
        <Button
          size="compact-sm"
          variant="default"
          onClick={() => onYear(year + 1)}
          disabled={year >= 2199}
          aria-label={t("calendars.after")}
        >
          ›
        </Button>
      </Group>
      {[...counts].map(([y, n]) => (
        <button
          key={y}
          type="button"
          className="chip"
          aria-pressed={Number(y) === year}
          onClick={() => onYear(Number(y))}
        >
          {t("calendars.year", { year: y, n })}
        </button>
      ))}
    </Group>
  );
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

const fields = ["name", "description", "weekdays", "dates"];

function Form({ calendar }: { calendar?: Calendar }) {
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
          <Paste
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

/** Paste adds many dates at once: typed, pasted, or from a file. */
function Paste({ known, onAdd }: { known: Set<string>; onAdd: (dates: string[]) => void }) {
  const { t } = useLanguage();
  const [text, setText] = useState("");
  const [result, setResult] = useState<{ added: number; there: number; faults: { line: number; text: string }[] }>();
  function add(from: string) {
    const { dates, faults } = parseDates(from);
    const fresh = dates.filter((d) => !known.has(d));
    setResult({ added: fresh.length, there: dates.length - fresh.length, faults });
    if (faults.length === 0) setText("");
    onAdd(dates);
  }
  return (
    <Stack gap="xs" className="paste">
      <Textarea
        label={t("calendars.paste")}
        description={t("calendars.paste.help")}
        inputWrapperOrder={["label", "input", "description", "error"]}
        placeholder={"2026-12-25\n2027-10-01..2027-10-07"}
        value={text}
        onChange={(e) => setText(e.currentTarget.value)}
        autosize
        minRows={5}
        maxRows={14}
        classNames={{ input: "mono" }}
        spellCheck={false}
      />
      <Group gap="xs">
        <Button size="xs" variant="default" disabled={text.trim() === ""} onClick={() => add(text)}>
          {t("calendars.add")}
        </Button>
        <FileButton onChange={(f) => void f?.text().then(add)} accept=".ics,.txt,.csv,text/calendar,text/plain">
          {(props) => (
            <Button {...props} size="xs" variant="default">
              {t("calendars.file")}
            </Button>
          )}
        </FileButton>
      </Group>
      {result && (
        <div role="status">
          <Text size="sm">{t("calendars.added", { n: result.added, known: result.there })}</Text>
          {result.faults.slice(0, 8).map((f) => (
            <Text key={f.line} size="sm" c="var(--bad)">
              {t("calendars.fault", { line: f.line, text: f.text })}
            </Text>
          ))}
          {result.faults.length > 8 && (
            <Text size="sm" c="var(--bad)">
              {t("bulk.more", { n: result.faults.length - 8 })}
            </Text>
          )}
        </div>
      )}
    </Stack>
  );
}
