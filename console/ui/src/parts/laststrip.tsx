import type { KeyboardEvent } from "react";
import { Link } from "wouter";
import type { Schemas } from "../api/client";
import { useT, type Translate } from "../i18n";
import { useExplain } from "../i18n/explain";
import { dateTime, shortDuration } from "../lib/time";
import { reasonText } from "./basics";
import { Icon, shapes } from "./icons";

type Last = Schemas["LastRun"];

const missedShape = "M8 3v6M8 12.5h.01";

/** lastText describes one of a job's last runs. */
function lastText(t: Translate, explain: (e: unknown) => string, r: Last): string {
  const state = r.state === "missed" ? t("strip.missed", { n: r.count ?? 1 }) : t(`state.${r.state}`);
  return [
    state,
    r.reason && reasonText(t, r.reason),
    explain(r.why),
    dateTime(r.at),
    r.duration_ms != null && shortDuration(r.duration_ms),
    r.shards ? t("run.shards", { n: r.shards }) : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

/** LastStrip shows a job's last runs, oldest first, by shape, colour and text. Arrow keys move the focus within it. */
export function LastStrip({ runs, name }: { runs: Last[]; name: string }) {
  const t = useT();
  const explain = useExplain();
  const cells = [...runs].reverse();
  const move = (e: KeyboardEvent<HTMLUListElement>) => {
    const by = e.key === "ArrowLeft" ? -1 : e.key === "ArrowRight" ? 1 : 0;
    if (!by) return;
    const all = [...e.currentTarget.querySelectorAll<HTMLElement>("[data-cell]")];
    all[all.indexOf(document.activeElement as HTMLElement) + by]?.focus();
    e.preventDefault();
  };
  if (cells.length === 0) return <span className="faint">–</span>;
  return (
    <ul className="last-strip" aria-label={t("strip.title", { name })} onKeyDown={move}>
      {cells.map((r, i) => {
        const text = lastText(t, explain, r);
        const shared = {
          "data-cell": true,
          className: `last-cell last-${r.state}`,
          title: text,
          tabIndex: i === cells.length - 1 ? 0 : -1,
        };
        const inside = (
          <>
            <Icon d={r.state === "missed" ? missedShape : shapes[r.state]} size={11} />
            <span className="sr-only">{text}</span>
          </>
        );
        return (
          <li key={r.id ?? `missed ${r.at}`}>
            {r.id ? (
              <Link href={`/runs/${r.id}`} {...shared}>
                {inside}
              </Link>
            ) : (
              <span {...shared}>{inside}</span>
            )}
          </li>
        );
      })}
    </ul>
  );
}
