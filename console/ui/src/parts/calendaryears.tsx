import { Button, Group, Text } from "@mantine/core";
import { Link } from "wouter";
import { useLanguage } from "../i18n";
import type { Calendar } from "../lib/calendars";

/** UsedBy says how many jobs use a calendar. */
export function UsedBy({ calendar }: { calendar: Calendar }) {
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
export function Years({ year, onYear, dates }: { year: number; onYear: (y: number) => void; dates: string[] }) {
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
