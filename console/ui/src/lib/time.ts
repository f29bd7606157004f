// Durations in Go's notation, and readable instants.

const unitMs: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** parseDuration returns the milliseconds of a Go duration ("1h30m", "90s", "1.5s"), or undefined. */
export function parseDuration(text: string): number | undefined {
  const s = text.trim();
  if (s === "0") return 0;
  if (!/^(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$/.test(s)) return undefined;
  let ms = 0;
  for (const m of s.matchAll(/(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)/g))
    ms += Number(m[1]) * (unitMs[m[2] ?? ""] ?? 0);
  return ms;
}

/** shortDuration writes a duration in its two largest units: "1h 5m", "3.2s", "85ms". */
export function shortDuration(ms: number): string {
  if (ms < 0) return "-" + shortDuration(-ms);
  if (ms < 1000) return `${Math.round(ms)}ms`;
  if (ms < 9950) return `${(ms / 1000).toFixed(1)}s`;
  const s = Math.round(ms / 1000);
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return h ? `${d}d ${h}h` : `${d}d`;
  if (h) return m ? `${h}h ${m}m` : `${h}h`;
  if (m) return s % 60 ? `${m}m ${s % 60}s` : `${m}m`;
  return `${s}s`;
}

/** goDuration drops the zero units that Go writes: "10m0s" becomes "10m". */
export function goDuration(text: string): string {
  return text.replace(/([hm])0s$/, "$1").replace(/h0m$/, "h");
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: string | undefined, withZone: boolean): Intl.DateTimeFormat {
  const key = `${zone}|${withZone}`;
  let f = formats.get(key);
  if (!f) {
    f = new Intl.DateTimeFormat("en-CA", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "2-digit",
      day: "2-digit",
      hour: "2-digit",
      minute: "2-digit",
      second: "2-digit",
      ...(withZone ? { timeZoneName: "shortOffset" as const } : {}),
    });
    formats.set(key, f);
  }
  return f;
}

function parts(at: Date, zone: string | undefined, withZone = false): Record<string, string> {
  return Object.fromEntries(
    format(zone, withZone)
      .formatToParts(at)
      .map((p) => [p.type, p.value]),
  );
}

/** dateTime writes an instant as 2026-03-29 02:30:00, in a zone. The default is the viewer's zone. */
export function dateTime(at: string | Date, zone?: string): string {
  const p = parts(new Date(at), zone);
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}`;
}

/** clock writes the time of day. It adds the date if the day is not today. */
export function clock(at: string | Date, now: Date, zone?: string): string {
  const [there, here] = [dateTime(at, zone), dateTime(now, zone)];
  if (there.slice(0, 10) === here.slice(0, 10)) return there.slice(11);
  return there.slice(0, 4) === here.slice(0, 4) ? there.slice(5) : there;
}

/** offset returns the zone's UTC offset at an instant: "GMT+2". */
export function offset(at: string | Date, zone?: string): string {
  return parts(new Date(at), zone, true).timeZoneName ?? "";
}

/** millis writes the time of day with milliseconds. */
export function millis(at: string | Date): string {
  const d = new Date(at);
  return `${dateTime(d).slice(11)}.${String(d.getMilliseconds()).padStart(3, "0")}`;
}

export const viewerZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** zones lists the IANA names of time zones that the browser supports. */
export const zones = (): string[] => ["UTC", ...Intl.supportedValuesOf("timeZone").filter((z) => z !== "UTC")];

/** inWords writes a wait in a language: "12 seconds", "3 minutes". It rounds minutes up. */
export function inWords(seconds: number, language: string): string {
  const minutes = seconds > 90;
  return new Intl.NumberFormat(language, {
    style: "unit",
    unit: minutes ? "minute" : "second",
    unitDisplay: "long",
  }).format(Math.ceil(minutes ? seconds / 60 : seconds));
}
