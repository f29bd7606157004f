import {
  Alert,
  Anchor,
  Group,
  Input,
  Loader,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useRef, useState } from "react";
import { Link } from "wouter";
import { ApiError, post, type Schedule } from "../api/client";
import { useLanguage, useT } from "../i18n";
import { useCalendars } from "../lib/calendars";
import { faultyFields, fieldAt, fieldNames, fields } from "../lib/cron";
import { tidySchedule } from "../lib/draft";
import { clockChanges } from "../lib/dst";
import { dateTime, offset, viewerZone, zones } from "../lib/time";
import { Countdown } from "./basics";

const kinds = ["cron", "fixed_rate", "fixed_delay", "once", "none"] as const;
const examples: [string, string][] = [
  ["*/5 * * * *", "every5"],
  ["0 * * * *", "hourly"],
  ["0 2 * * *", "daily"],
  ["30 8 * * 1-5", "workdays"],
  ["0 0 1 * *", "monthly"],
];

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

/** ClockChanges shows the effects of the next clock changes on the fire times. */
function ClockChanges({ schedule, zone }: { schedule: Schedule; zone: string }) {
  const t = useT();
  const changes = useQuery({
    queryKey: ["clock-changes", schedule, zone],
    queryFn: ({ signal }) =>
      clockChanges(schedule, zone, Date.now(), async (after) => {
        const { start_at, end_at, jitter, ...plain } = schedule;
        void [start_at, end_at, jitter]; // one week before a clock change, the schedule may not have started
        const p = await post("/api/v1/schedules/preview", {
          body: { schedule: plain, count: 1, from: new Date(after).toISOString() },
          signal,
        });
        return p.fire_times[0] ? Date.parse(p.fire_times[0]) : undefined;
      }),
    staleTime: Infinity,
    retry: false,
  });
  if (!changes.data?.length) return null;
  return (
    <Alert
      color="yellow"
      variant="light"
      p="xs"
      title={
        <Text size="sm" fw={600} c="var(--warn)">
          {t("dst.title", { zone })}
        </Text>
      }
    >
      {changes.data.map((c) => (
        <Text size="sm" key={c.day + c.from}>
          {t(`dst.${c.kind}`, { day: c.day, from: c.from, to: c.to })}
        </Text>
      ))}
    </Alert>
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

/** CronField edits a cron expression. A layer under the text marks faulty fields, and the help names the field at the caret. */
function CronField({ value, set, error }: { value: Schedule; set: (c: Partial<Schedule>) => void; error?: string }) {
  const t = useT();
  const [caret, setCaret] = useState(0);
  const layer = useRef<HTMLDivElement>(null);
  const expr = value.expr ?? "";
  const dialect = value.dialect ?? "standard";
  const parts = fields(expr);
  const faulty = faultyFields(error);
  const here = fieldAt(expr, caret);
  const names = fieldNames(parts.length, dialect);
  const follow = (e: React.SyntheticEvent<HTMLInputElement>) => {
    setCaret(e.currentTarget.selectionStart ?? 0);
    if (layer.current) layer.current.scrollLeft = e.currentTarget.scrollLeft;
  };
  return (
    <Input.Wrapper label={t("field.expr")} id="cron-expr" error={error} errorProps={{ role: "status" }}>
      <Group gap="xs" align="center">
        <div className="cron">
          <div className="cron-layer mono" aria-hidden="true" ref={layer}>
            {parts.map((p, i) => {
              const end = i === 0 ? 0 : (parts[i - 1]?.start ?? 0) + (parts[i - 1]?.text.length ?? 0);
              return (
                <span key={i}>
                  {expr.slice(end, p.start)}
                  <span className={faulty.includes(i) ? "cron-bad" : undefined}>{p.text}</span>
                </span>
              );
            })}
          </div>
          <input
            id="cron-expr"
            className="cron-input mono"
            value={expr}
            spellCheck={false}
            autoComplete="off"
            aria-invalid={error ? true : undefined}
            aria-describedby="cron-help"
            onChange={(e) => {
              set({ expr: e.currentTarget.value });
              follow(e);
            }}
            onSelect={follow}
            onScroll={follow}
          />
        </div>
        <SegmentedControl
          size="xs"
          value={dialect}
          onChange={(d) => set({ dialect: d as "standard" | "quartz" })}
          data={[
            { value: "standard", label: t("dialect.standard") },
            { value: "quartz", label: "Quartz" },
          ]}
          aria-label={t("field.dialect")}
        />
      </Group>
      <div id="cron-help" className="cron-help">
        {names.map((n, i) => (
          <span key={n} className={i === here ? "cron-here" : faulty.includes(i) ? "cron-bad-name" : undefined}>
            {t(`cron.${n}`)}
          </span>
        ))}
        {names[here] && (
          <div className="cron-range">
            {t(`cron.${names[here]}.help`)}
            {dialect === "quartz" && (names[here] === "dom" || names[here] === "dow")
              ? " " + t("cron.quartz.help")
              : ""}
          </div>
        )}
      </div>
      {dialect === "standard" && (
        <Group gap="xs" mt={4}>
          {examples.map(([e, k]) => (
            <Anchor key={e} component="button" type="button" size="xs" onClick={() => set({ expr: e })}>
              {t(`cron.${k}` as "cron.daily")}
            </Anchor>
          ))}
        </Group>
      )}
    </Input.Wrapper>
  );
}

function Preview({
  zone,
  description,
  times,
  busy,
  kind,
}: {
  zone: string;
  description: string;
  times: string[];
  busy: boolean;
  kind: Schedule["kind"];
}) {
  const t = useT();
  const viewer = viewerZone();
  const own = kind === "cron" ? zone : viewer;
  const both = own !== viewer;
  return (
    <div className="preview" aria-live="polite">
      <Group gap="xs">
        <Text size="sm" fw={600}>
          {description}
        </Text>
        {busy && <Loader size={12} />}
      </Group>
      {times.length === 0 ? (
        <Text size="sm" c="dimmed">
          {t("schedule.never")}
        </Text>
      ) : (
        <table className="list compact">
          <thead>
            <tr>
              <th>{own}</th>
              {both && <th>{t("schedule.yours", { zone: viewer })}</th>}
              <th className="mid">
                <span className="sr-only">{t("in", { d: "…" })}</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {times.map((at, i) => {
              const before = times[i - 1];
              const shift = before !== undefined && offset(before, own) !== offset(at, own);
              return (
                <tr key={at + String(i)}>
                  <td className="num">
                    {dateTime(at, own)} <span className="faint">{offset(at, own)}</span>
                    {shift && <span className="shift"> {t("schedule.shift")}</span>}
                  </td>
                  {both && <td className="num">{dateTime(at)}</td>}
                  <td className="num mid">{i === 0 && <Countdown at={at} />}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </div>
  );
}
