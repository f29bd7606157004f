import { useRef, useState, type KeyboardEvent } from "react";
import { useLanguage, type Language } from "../i18n";
import { later, month, weekdayOf, weekdays, type Weekday } from "../lib/daysoff";
import { useNow } from "../lib/hooks";
import { isoDay } from "../lib/week";

const locale = (language: Language) => (language === "zh" ? "zh-CN" : "en-GB");

/** weekdayNames returns the names of the days of the week in a language. */
export function weekdayNames(language: Language, width: "long" | "short" | "narrow"): Record<Weekday, string> {
  const format = new Intl.DateTimeFormat(locale(language), { weekday: width, timeZone: "UTC" });
  return Object.fromEntries(weekdays.map((w, i) => [w, format.format(Date.UTC(2026, 10, 23 + i))])) as Record<
    Weekday,
    string
  >; // the 23rd is a Monday
}

/**
 * YearView shows the days off of a year. With choose, each day is a button. The arrow keys move the focus from day to day, and Page Up
 * and Page Down to the same day of another month, because there are too many days for Tab. A click on one day and a Shift-click on
 * another select all days between them.
 */
export function YearView({
  year,
  dates,
  weekly,
  choose,
}: {
  year: number;
  dates: Set<string>;
  weekly: Weekday[];
  choose?: (days: string[], off: boolean) => void;
}) {
  const { t, language } = useLanguage();
  const box = useRef<HTMLDivElement>(null);
  const before = useRef<string>(undefined); // the last selected day
  const today = isoDay(useNow(60_000));
  const [at, setAt] = useState<string>();
  const tabStop = at?.startsWith(String(year)) ? at : today.startsWith(String(year)) ? today : `${year}-01-01`;
  const names = { long: weekdayNames(language, "long"), narrow: weekdayNames(language, "narrow") };
  const monthName = new Intl.DateTimeFormat(locale(language), { month: "long", timeZone: "UTC" });
  const dayName = new Intl.DateTimeFormat(locale(language), {
    weekday: "long",
    day: "numeric",
    month: "long",
    year: "numeric",
    timeZone: "UTC",
  });

  function move(e: KeyboardEvent) {
    const here = (e.target as HTMLElement).dataset.day;
    if (!here) return;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -7, ArrowDown: 7 }[e.key];
    const months = { PageUp: -1, PageDown: 1 }[e.key];
    let to: string | undefined;
    if (by) to = later(here, by);
    else if (months)
      to = month(year, Number(here.slice(5, 7)) + months)
        .flat()
        .findLast((d) => d && d.slice(8) <= here.slice(8));
    else return;
    e.preventDefault();
    if (to) box.current?.querySelector<HTMLElement>(`[data-day="${to}"]`)?.focus();
  }
  function pick(day: string, all: boolean) {
    const off = !dates.has(day);
    const days = [day];
    if (all && before.current)
      for (let d = before.current, n = 0; d !== day && n < 366; d = later(d, d < day ? 1 : -1), n++) days.push(d);
    before.current = day;
    choose?.(days, off);
  }

  return (
    <div className="year" ref={box} onKeyDown={move}>
      {Array.from({ length: 12 }, (_, m) => (
        <table key={m} className="month">
          <caption>{monthName.format(Date.UTC(year, m, 1))}</caption>
          <thead>
            <tr>
              {weekdays.map((w) => (
                <th key={w} scope="col" abbr={names.long[w]}>
                  {names.narrow[w]}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {month(year, m + 1).map((week, i) => (
              <tr key={i}>
                {week.map((day, k) => {
                  if (!day) return <td key={k} />;
                  const off = dates.has(day);
                  const look = `day${off ? " day-off" : ""}${weekly.includes(weekdayOf(day)) ? " day-weekly" : ""}${day === today ? " day-today" : ""}`;
                  const number = Number(day.slice(8));
                  return (
                    <td key={k}>
                      {choose ? (
                        <button
                          type="button"
                          className={look}
                          data-day={day}
                          tabIndex={day === tabStop ? 0 : -1}
                          aria-pressed={off}
                          aria-label={dayName.format(new Date(`${day}T00:00:00Z`))}
                          onFocus={() => setAt(day)}
                          onClick={(e) => pick(day, e.shiftKey)}
                        >
                          {number}
                        </button>
                      ) : (
                        <span className={look}>
                          {number}
                          {(off || weekly.includes(weekdayOf(day))) && (
                            <span className="sr-only"> {t("calendars.off")}</span>
                          )}
                        </span>
                      )}
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      ))}
    </div>
  );
}
