// Days off of calendars. Dates are local dates in the form of the API, 2026-12-25, and can be compared as strings.

export const weekdays = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"] as const;
export type Weekday = (typeof weekdays)[number];

/** The maximum number of dates in a calendar. */
export const mostDates = 1000;

const firstYear = 1970;
const lastYear = 2199;
const dayMs = 86_400_000;

const utc = (date: string): number => Date.parse(`${date}T00:00:00Z`);
const written = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

/** dateOf returns a date, or undefined if it does not exist, such as 31 February, or is before 1970 or after 2199. */
export function dateOf(year: number, month: number, day: number): string | undefined {
  const date = `${String(year).padStart(4, "0")}-${String(month).padStart(2, "0")}-${String(day).padStart(2, "0")}`;
  const ms = utc(date);
  return year >= firstYear && year <= lastYear && !Number.isNaN(ms) && written(ms) === date ? date : undefined;
}

/** later returns the date that is a number of days after another. The number may be negative. */
export const later = (date: string, days: number): string => written(utc(date) + days * dayMs);

/** weekdayOf returns the day of the week of a date. */
export const weekdayOf = (date: string): Weekday => weekdays[(new Date(utc(date)).getUTCDay() + 6) % 7] ?? "monday";

/** month lists the weeks of a month (1 to 12) from Monday. Days of other months are undefined. */
export function month(year: number, n: number): (string | undefined)[][] {
  const weeks: (string | undefined)[][] = [];
  let week: (string | undefined)[] = [];
  for (let day = 1; ; day++) {
    const date = dateOf(year, n, day);
    if (!date) break;
    if (day === 1) week = Array.from({ length: weekdays.indexOf(weekdayOf(date)) }, () => undefined);
    week.push(date);
    if (week.length === 7) {
      weeks.push(week);
      week = [];
    }
  }
  if (week.length > 0) weeks.push([...week, ...Array.from({ length: 7 - week.length }, () => undefined)]);
  return weeks;
}

export interface Parsed {
  /** Sorted, without duplicates. */
  dates: string[];
  /** Lines or events that could not be read, with the number of the line, from 1. */
  faults: { line: number; text: string }[];
}

/**
 * parseDates reads dates from an iCalendar file, or from lines with one date, several dates or a span (2026-10-01 to 2026-10-07).
 * It ignores other words on a line, such as a holiday's name.
 */
export function parseDates(text: string): Parsed {
  const found = /^BEGIN:VCALENDAR/im.test(text) ? parseICS(text) : parseLines(text);
  return { dates: [...new Set(found.dates)].sort(), faults: found.faults };
}

const one = /(?<!\d)(?:(\d{4})([-/.])(\d{1,2})\2(\d{1,2})|(\d{4})(\d\d)(\d\d)|(\d{4})年(\d{1,2})月(\d{1,2})日)(?!\d)/g;
const between = /^\s*(?:\.\.\.?|…|–|—|~|-|to|until|bis|至|到)\s*$/i;

function parseLines(text: string): Parsed {
  const out: Parsed = { dates: [], faults: [] };
  text.split(/\r?\n/).forEach((whole, i) => {
    const line = whole.replace(/#.*/, "").trim();
    if (line === "") return;
    const fault = () => out.faults.push({ line: i + 1, text: line.slice(0, 80) });
    const found = [...line.matchAll(one)].map((m) => {
      const [year, n, day] = [m[1] ?? m[5] ?? m[8], m[3] ?? m[6] ?? m[9], m[4] ?? m[7] ?? m[10]].map(Number);
      return { date: dateOf(year ?? 0, n ?? 0, day ?? 0), start: m.index, end: m.index + m[0].length };
    });
    if (found.length === 0 || found.some((f) => !f.date)) return void fault();
    const [a, b] = found;
    if (found.length === 2 && a?.date && b?.date && between.test(line.slice(a.end, b.start))) {
      const span = days(a.date, b.date);
      if (span) out.dates.push(...span);
      else fault();
      return;
    }
    out.dates.push(...found.flatMap((f) => f.date ?? []));
  });
  return out;
}

/** days lists the dates of a span, including both ends. If the span is reversed or too long for a calendar, it returns undefined. */
function days(from: string, to: string): string[] | undefined {
  const n = (utc(to) - utc(from)) / dayMs + 1;
  return n >= 1 && n <= mostDates ? Array.from({ length: n }, (_, i) => later(from, i)) : undefined;
}

/** parseICS returns the days of a file's events. For a yearly event, these are the days of this year and the next five years. */
function parseICS(text: string): Parsed {
  const out: Parsed = { dates: [], faults: [] };
  const thisYear = new Date().getFullYear();
  let event: Map<string, string> | undefined;
  let begun = 0;
  let name = "";
  const end = () => {
    if (!event || /^CANCELLED$/i.test(event.get("STATUS") ?? "")) return;
    const spans = occurrences(event, thisYear);
    if (spans) out.dates.push(...spans);
    else out.faults.push({ line: begun, text: name.slice(0, 80) });
  };
  const lines = text.split(/\r?\n/);
  for (let i = 0; i < lines.length; i++) {
    let line = lines[i] ?? "";
    const at = i + 1;
    while (/^[ \t]/.test(lines[i + 1] ?? "")) line += (lines[++i] ?? "").slice(1); // a long line is continued on the next line
    const [, property = "", value = ""] = /^([A-Za-z-]+)(?:;[^:]*)?:(.*)$/.exec(line) ?? [];
    if (/^BEGIN:VEVENT/i.test(line)) {
      event = new Map();
      begun = at;
      name = "";
    } else if (/^END:VEVENT/i.test(line)) {
      end();
      event = undefined;
    } else if (event && property) {
      const key = property.toUpperCase();
      event.set(key, key === "EXDATE" ? `${event.get(key) ?? ""},${value}` : value);
      if (key === "SUMMARY") name = value;
    }
  }
  return out;
}

const yearly = /^(?:FREQ=YEARLY|INTERVAL=1|COUNT=\d+|UNTIL=\d{8}.*|WKST=\w\w|BYMONTH=\d+|BYMONTHDAY=\d+)$/i;

function occurrences(event: Map<string, string>, thisYear: number): string[] | undefined {
  const day = (text: string | undefined) => {
    const m = /^(\d{4})(\d\d)(\d\d)/.exec(text ?? "");
    return m ? dateOf(Number(m[1]), Number(m[2]), Number(m[3])) : undefined;
  };
  const start = day(event.get("DTSTART"));
  if (!start) return undefined;
  // The end of an event without a time of day is the day after its last day. An event with a time of day ends on the day of its end.
  const finish = event.get("DTEND") ?? "";
  const last = day(finish);
  const until = !last ? start : /T(?!000000)/.test(finish) ? last : later(last, -1);
  const span = days(start, until < start ? start : until);
  if (!span) return undefined;
  const rule = event.get("RRULE");
  const without = new Set((event.get("EXDATE") ?? "").split(",").map(day));
  if (!rule) return span;
  const parts = rule.split(";");
  const [year = 0, n = 0, d = 0] = start.split("-").map(Number);
  const part = (key: string) => parts.find((p) => p.toUpperCase().startsWith(`${key}=`))?.slice(key.length + 1);
  if (
    !/FREQ=YEARLY/i.test(rule) ||
    !parts.every((p) => yearly.test(p)) ||
    Number(part("BYMONTH") ?? n) !== n ||
    Number(part("BYMONTHDAY") ?? d) !== d
  )
    return undefined;
  const stop = day(part("UNTIL"));
  const count = Number(part("COUNT") ?? Infinity);
  const out: string[] = [];
  for (let y = year, times = 0; y <= thisYear + 5 && times < count; y++) {
    const at = dateOf(y, n, d); // there is no 29 February in most years
    if (!at) continue;
    if (stop && at > stop) break;
    times++;
    if (y < thisYear || without.has(at)) continue;
    out.push(...span.map((_, i) => later(at, i)));
  }
  return out;
}
