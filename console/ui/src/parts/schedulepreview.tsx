import { Alert, Group, Loader, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { post, type Schedule } from "../api/client";
import { useT } from "../i18n";
import { clockChanges } from "../lib/dst";
import { dateTime, offset, viewerZone } from "../lib/time";
import { Countdown } from "./basics";

/** ClockChanges shows the effects of the next clock changes on the fire times. */
export function ClockChanges({ schedule, zone }: { schedule: Schedule; zone: string }) {
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

/** Preview shows the description of a schedule and its next fire times. */
export function Preview({
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
