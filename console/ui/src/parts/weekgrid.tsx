import { useRef, type KeyboardEvent } from "react";
import { useLanguage } from "../i18n";
import { dateTime } from "../lib/time";
import { addDays, isoDay, loadClass, short, type Slot } from "../lib/week";

/** WeekGrid is a table of hours and days. Arrow keys move the focus in it. */
export function WeekGrid({
  week,
  days,
  now,
  language,
  chosen,
  choose,
}: {
  week: Date;
  days: (Slot | undefined)[][];
  now: Date;
  language: "en" | "zh";
  chosen?: [number, number];
  choose: (at: [number, number]) => void;
}) {
  const { t } = useLanguage();
  const table = useRef<HTMLTableElement>(null);
  const most = Math.max(1, ...days.flat().map((s) => (s ? s.planned + s.runs : 0)));
  const names = days.map((_, i) =>
    new Intl.DateTimeFormat(language === "zh" ? "zh-CN" : "en-GB", {
      weekday: "short",
      day: "numeric",
      month: "numeric",
    }).formatToParts(addDays(week, i)),
  );
  const today = isoDay(now);
  const hour = now.getHours();
  const start: [number, number] = chosen ?? [0, 0];
  const move = (e: KeyboardEvent) => {
    const at = (e.target as HTMLElement).dataset.at?.split(",").map(Number);
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
    if (!at || !by) return;
    e.preventDefault();
    table.current
      ?.querySelector<HTMLElement>(`[data-at="${(at[0] ?? 0) + (by[0] ?? 0)},${(at[1] ?? 0) + (by[1] ?? 0)}"]`)
      ?.focus();
  };
  return (
    <table className="week" ref={table} onKeyDown={move}>
      <caption className="sr-only">{t("week.caption")}</caption>
      <thead>
        <tr>
          <th>
            <span className="sr-only">{t("cron.hour")}</span>
          </th>
          {names.map((n, i) => (
            <th key={i} scope="col" className={isoDay(addDays(week, i)) === today ? "week-today" : undefined}>
              {n.map((p, k) => (
                <span key={k} className={p.type === "weekday" ? "week-day" : undefined}>
                  {p.type === "literal" && k > 0 && n[k - 1]?.type === "weekday" ? " " : p.value}
                </span>
              ))}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {Array.from({ length: 24 }, (_, h) => (
          <tr key={h}>
            <th scope="row" className="num">
              {String(h).padStart(2, "0")}
            </th>
            {days.map((d, i) => {
              const s = d[h];
              if (!s) return <td key={i} />;
              const n = s.planned + s.runs;
              const past = Date.parse(s.from) + 3_600_000 <= now.getTime();
              const shown = n > 0 ? short(n) : "";
              // The name contains the number that is visible, for users who control the console by voice.
              const counts = [s.runs, s.planned].map(String);
              const words = [
                dateTime(s.from).slice(0, 16),
                n > 0 && !counts.includes(shown) && t("week.total", { n: shown }),
                s.runs > 0 && t("week.runs", { n: s.runs }),
                s.failed > 0 && t("week.failed", { n: s.failed }),
                (!past || s.planned > 0) && t("week.planned", { n: s.planned }),
              ]
                .filter(Boolean)
                .join(" · ");
              return (
                <td key={i}>
                  <button
                    type="button"
                    data-at={`${i},${h}`}
                    tabIndex={i === start[0] && h === start[1] ? 0 : -1}
                    aria-pressed={chosen?.[0] === i && chosen[1] === h}
                    aria-label={words}
                    title={words}
                    onClick={() => choose([i, h])}
                    className={`slot load-${loadClass(n, most)}${past ? " slot-past" : ""}${isoDay(addDays(week, i)) === today && h === hour ? " slot-now" : ""}`}
                  >
                    {shown}
                    {s.failed > 0 && (
                      <span className="slot-failed" aria-hidden="true">
                        !
                      </span>
                    )}
                  </button>
                </td>
              );
            })}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
