import type { Schedule } from "../api/client";
import type { Translate } from "../i18n";
import { goDuration } from "../lib/time";

/** scheduleText describes a schedule briefly, for lists. */
export function scheduleText(t: Translate, s: Schedule): string {
  return s.calendar ? t("schedule.except", { schedule: timesText(t, s), calendar: s.calendar }) : timesText(t, s);
}

/** timesText describes a schedule without its days off. */
export function timesText(t: Translate, s: Schedule): string {
  switch (s.kind) {
    case "none":
      return t("schedule.none");
    case "cron":
      return s.expr + (s.time_zone && s.time_zone !== "UTC" ? ` (${s.time_zone})` : "");
    case "fixed_rate":
      return t("schedule.every", { d: goDuration(s.every ?? "") });
    case "fixed_delay":
      return t("schedule.after", { d: goDuration(s.delay ?? "") });
    case "once":
      return t("schedule.once", { at: s.at ?? "" });
  }
}
