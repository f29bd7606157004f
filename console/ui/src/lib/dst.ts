// The effects of clock changes on a cron schedule. Only the server computes fire times. This file asks it around each clock change.
import type { Schedule } from "../api/client";
import { fieldNames, fields } from "./cron";
import { dateTime } from "./time";

const minute = 60_000;
const day = 24 * 60 * minute;

/** Transition is a change of a zone's UTC offset. All values are in milliseconds. */
export interface Transition {
  at: number;
  before: number;
  after: number;
}

/** offsetAt returns the UTC offset of a zone at an instant, in milliseconds. */
export function offsetAt(zone: string, at: number): number {
  const whole = Math.floor(at / 1000) * 1000;
  return Date.parse(dateTime(new Date(whole), zone).replace(" ", "T") + "Z") - whole;
}

/** transitions finds the clock changes of a zone in a span. */
export function transitions(zone: string, from: number, until: number): Transition[] {
  const out: Transition[] = [];
  let start = Math.floor(from / 1000) * 1000;
  let before = offsetAt(zone, start);
  while (start < until) {
    const end = Math.min(start + day, until);
    const after = offsetAt(zone, end);
    if (after !== before) {
      let [low, high] = [start, end];
      while (high - low > 1000) {
        const middle = Math.floor((low + high) / 2000) * 1000;
        if (offsetAt(zone, middle) === before) low = middle;
        else high = middle;
      }
      out.push({ at: high, before, after });
      before = after;
    }
    start = end;
  }
  return out;
}

const atMidnight = ["@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"];

/** fixedTimes lists the times of day, in minutes, of a schedule whose hours and minutes are plain numbers. For others it returns undefined. */
export function fixedTimes(expr: string, dialect: "standard" | "quartz"): number[] | undefined {
  if (atMidnight.includes(expr.trim().toLowerCase())) return [0];
  const parts = fields(expr);
  const names = fieldNames(parts.length, dialect);
  const values = (name: "hour" | "minute") => {
    const text = parts[names.indexOf(name)]?.text ?? "";
    return /^\d+(,\d+)*$/.test(text) ? text.split(",").map(Number) : undefined;
  };
  const [hours, minutes] = [values("hour"), values("minute")];
  if (!hours || !minutes) return undefined;
  return hours.flatMap((h) => minutes.map((m) => 60 * h + m)).sort((a, b) => a - b);
}

export interface ClockChange {
  /** moved: fire times in the gap move to its end; skipped: the gap has no fire times; once, twice: how often a repeated hour fires. */
  kind: "moved" | "skipped" | "once" | "twice";
  /** The day, and the skipped or repeated span in the zone's local time. */
  day: string;
  from: string;
  to: string;
}

/** clockChanges returns the effects of the next clock changes on a cron schedule. next returns the first fire time after an instant. */
export async function clockChanges(
  s: Schedule,
  zone: string,
  now: number,
  next: (after: number) => Promise<number | undefined>,
): Promise<ClockChange[]> {
  const times = fixedTimes(s.expr ?? "", s.dialect ?? "standard");
  const out: ClockChange[] = [];
  for (const change of transitions(zone, now, now + 366 * day)) {
    const kind = await effect(change, times, next);
    if (!kind) continue;
    const wall = (offset: number) => new Date(change.at + offset).toISOString();
    const [from, to] =
      change.after > change.before
        ? [wall(change.before), wall(change.after)]
        : [wall(change.after), wall(change.before)];
    out.push({ kind, day: from.slice(0, 10), from: from.slice(11, 16), to: to.slice(11, 16) });
  }
  return out;
}

async function effect(
  { at, before, after }: Transition,
  times: number[] | undefined,
  next: (after: number) => Promise<number | undefined>,
): Promise<ClockChange["kind"] | undefined> {
  const length = Math.abs(after - before);
  const from = (((at + Math.min(before, after)) % day) + day) % day;
  const within = times?.some((m) => m * minute >= from && m * minute < from + length);
  if (times && !within) return undefined;
  if (after > before) {
    if (times) return (await next(at - 1)) === at ? "moved" : undefined;
    // One week earlier the same day of the week has this hour.
    const week = at - 7 * day;
    const fire = await next(week - 1);
    return fire !== undefined && fire < week + length ? "skipped" : undefined;
  }
  const first = await next(at - length - 1);
  if (first === undefined || first >= at) return undefined;
  const second = await next(at - 1);
  return second !== undefined && second < at + length ? "twice" : "once";
}
