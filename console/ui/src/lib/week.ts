// The week of all schedules in the viewer's time zone.
import { dateTime } from "./time";

export interface Cell {
  at: string;
  planned: number;
  runs: number;
  succeeded: number;
  failed: number;
}

/** Slot is one hour of a local day. If the clock repeats the hour, the slot contains both passes. */
export interface Slot {
  from: string;
  planned: number;
  runs: number;
  failed: number;
}

/** monday returns the local midnight at which a day's week starts. */
export function monday(day: Date): Date {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() - ((day.getDay() + 6) % 7));
}

/** addDays returns a local midnight, also if the days in between do not have 24 hours. */
export const addDays = (day: Date, n: number): Date => new Date(day.getFullYear(), day.getMonth(), day.getDate() + n);

/** isoDay writes a local day: 2026-11-23. */
export const isoDay = (day: Date): string => dateTime(day).slice(0, 10);

/** parseDay reads a local day, or undefined. */
export function parseDay(text: string): Date | undefined {
  const m = /^(\d{4})-(\d\d)-(\d\d)$/.exec(text);
  return m ? new Date(Number(m[1]), Number(m[2]) - 1, Number(m[3])) : undefined;
}

/** slots puts cells into seven days of 24 hours. Hours that the clock skips stay undefined. */
export function slots(week: Date, cells: Cell[], zone?: string): (Slot | undefined)[][] {
  const days = Array.from({ length: 7 }, (_, i) => isoDay(addDays(week, i)));
  const out: (Slot | undefined)[][] = days.map(() => Array.from({ length: 24 }, () => undefined));
  for (const c of cells) {
    const local = dateTime(c.at, zone);
    const day = out[days.indexOf(local.slice(0, 10))];
    if (!day) continue;
    const hour = Number(local.slice(11, 13));
    const before = day[hour];
    day[hour] = {
      from: before?.from ?? c.at,
      planned: (before?.planned ?? 0) + c.planned,
      runs: (before?.runs ?? 0) + c.runs,
      failed: (before?.failed ?? 0) + c.failed,
    };
  }
  return out;
}

/** loadClass ranks a number from 0 (none) to 5 (the most). The scale is logarithmic, so that jobs that fire every second do not hide all others. */
export function loadClass(n: number, most: number): number {
  if (n <= 0) return 0;
  return Math.max(1, Math.min(5, Math.ceil((5 * Math.log(n + 1)) / Math.log(most + 1))));
}

/** short writes a count in at most four characters: 950, 3.6k, 12k, 1.2M. */
export function short(n: number): string {
  if (n < 1000) return String(n);
  const [value, unit] = n < 1_000_000 ? [n / 1000, "k"] : [n / 1_000_000, "M"];
  return (value < 9.95 ? value.toFixed(1).replace(/\.0$/, "") : String(Math.round(value))) + unit;
}
