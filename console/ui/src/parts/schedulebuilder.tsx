import { SegmentedControl, Select, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "wouter";
import { ApiError, post, type Schedule } from "../api/client";
import { useLanguage, useT } from "../i18n";
import { useCalendars } from "../lib/calendars";
import { tidySchedule } from "../lib/draft";
import { dateTime, viewerZone, zones } from "../lib/time";
import { CronField } from "./cronfield";
import { ClockChanges, Preview } from "./schedulepreview";

const kinds = ["cron", "fixed_rate", "fixed_delay", "once", "none"] as const;
/** ScheduleBuilder edits a schedule. While the user types, it shows the server's description and fire times. */
export function ScheduleBuilder({
  value,
  onChange,
  error,
}: {
  value: Schedule;
  onChange: (s: Schedule) => void;
  error?: ApiError;
}) {
  const { t, language } = useLanguage();
  const set = (c: Partial<Schedule>) => onChange({ ...value, ...c });
  const [settled] = useDebouncedValue(value, 250);
  const asked = useMemo(() => tidySchedule(settled), [settled]);
  const preview = useQuery({
    queryKey: ["preview", asked, language],
    queryFn: ({ signal }) => post("/api/v1/schedules/preview", { body: { schedule: asked, count: 10 }, signal }),
    enabled: asked.kind !== "none",
    placeholderData: keepPreviousData,
    retry: (n, e) => n < 2 && !(e instanceof ApiError && e.status === 422),
    staleTime: 10_000,
  });
  const refused = preview.error instanceof ApiError && preview.error.status === 422 ? preview.error : undefined;
  const at = (field: string) => refused?.at(`schedule.${field}`) ?? error?.at(`schedule.${field}`);
  const zoneNames = useMemo(() => zones(), []);
  const jitter = (
    <TextInput
      label={t("field.jitter")}
      description={t("field.jitter.help")}
      inputWrapperOrder={["label", "input", "description", "error"]}
      placeholder="0s"
      value={value.jitter ?? ""}
      onChange={(e) => set({ jitter: e.currentTarget.value })}
      error={at("jitter")}
    />
  );

  return (
    <Stack gap="sm">
      <div className="segments">
        <SegmentedControl
          size="xs"
          value={value.kind}
          onChange={(k) => set({ kind: k as Schedule["kind"] })}
          data={kinds.map((k) => ({ value: k, label: t(`kind.${k}`) }))}
          aria-label={t("field.schedule")}
        />
      </div>
      <Text size="xs" c="dimmed">
        {t(`kind.${value.kind}.help`)}
      </Text>
      {value.kind === "cron" && <CronField value={value} set={set} error={at("expr")} />}
      {value.kind === "fixed_rate" && (
        <TextInput
          label={t("field.every")}
          placeholder="90s"
          value={value.every ?? ""}
          onChange={(e) => set({ every: e.currentTarget.value })}
          error={at("every")}
          w={220}
          classNames={{ input: "mono" }}
        />
      )}
      {value.kind === "fixed_delay" && (
        <TextInput
          label={t("field.delay")}
          placeholder="5m"
          value={value.delay ?? ""}
          onChange={(e) => set({ delay: e.currentTarget.value })}
          error={at("delay")}
          w={220}
          classNames={{ input: "mono" }}
        />
      )}
      {value.kind === "once" && (
        <InstantField label={t("field.at")} value={value.at} onChange={(v) => set({ at: v })} error={at("at")} />
      )}
      {value.kind !== "none" && (
        <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
          {value.kind === "cron" && (
            <Select
              label={t("field.time_zone")}
              searchable
              limit={60}
              data={zoneNames.includes(value.time_zone ?? "UTC") ? zoneNames : [value.time_zone ?? "UTC", ...zoneNames]}
              value={value.time_zone || null}
              placeholder={t("schedule.serverzone")}
              onChange={(z) => set({ time_zone: z ?? undefined })}
              error={at("time_zone")}
              clearable
            />
          )}
          {(value.kind === "cron" || value.kind === "fixed_rate") && (
            <CalendarPick value={value.calendar} onChange={(calendar) => set({ calendar })} error={at("calendar")} />
          )}
          {value.kind === "fixed_rate" && jitter}
          {value.kind !== "once" && (
            <InstantField
              label={t("field.start_at")}
              value={value.start_at}
              onChange={(v) => set({ start_at: v })}
              error={at("start_at")}
            />
          )}
          {value.kind !== "once" && (
            <InstantField
              label={t("field.end_at")}
              value={value.end_at}
              onChange={(v) => set({ end_at: v })}
              error={at("end_at")}
            />
          )}
          {value.kind === "cron" && jitter}
        </SimpleGrid>
      )}
      {value.kind === "cron" && !refused && preview.data && (
        <ClockChanges schedule={asked} zone={preview.data.time_zone} />
      )}
      {value.kind !== "none" && !refused && preview.data && (
        <Preview
          zone={preview.data.time_zone}
          description={preview.data.description}
          times={preview.data.fire_times}
          busy={preview.isFetching}
          kind={value.kind}
        />
      )}
    </Stack>
  );
}

/** CalendarPick selects a calendar of days off, or none. */
function CalendarPick({
  value,
  onChange,
  error,
}: {
  value?: string;
  onChange: (name: string | undefined) => void;
  error?: string;
}) {
  const t = useT();
  const calendars = useCalendars();
  const names = calendars.data?.map((c) => c.name) ?? [];
  const none = calendars.data?.length === 0;
  return (
    <Select
      label={t("field.calendar")}
      description={
        none ? (
          <>
            {t("field.calendar.make")}{" "}
            <Link className="link" href="/calendars">
              {t("nav.calendars")}
            </Link>
          </>
        ) : (
          t("field.calendar.help")
        )
      }
      inputWrapperOrder={["label", "input", "description", "error"]}
      data={value && !names.includes(value) ? [value, ...names] : names}
      value={value || null}
      placeholder={t("field.calendar.none")}
      onChange={(name) => onChange(name ?? undefined)}
      error={error}
      disabled={none && !value}
      searchable
      clearable
    />
  );
}

/** InstantField edits an instant in the viewer's local time. */
function InstantField({
  label,
  value,
  onChange,
  error,
}: {
  label: string;
  value?: string;
  onChange: (v: string | undefined) => void;
  error?: string;
}) {
  const t = useT();
  const local = value && !Number.isNaN(Date.parse(value)) ? dateTime(value).replace(" ", "T") : "";
  return (
    <TextInput
      label={label}
      description={t("field.viewerzone", { zone: viewerZone() })}
      inputWrapperOrder={["label", "input", "description", "error"]}
      type="datetime-local"
      step={1}
      value={local}
      error={error}
      onChange={(e) => onChange(e.currentTarget.value ? new Date(e.currentTarget.value).toISOString() : undefined)}
    />
  );
}
