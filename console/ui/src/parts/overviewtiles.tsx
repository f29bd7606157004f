import { search, type Answer } from "../api/client";
import { useT } from "../i18n";
import { shortDuration } from "../lib/time";
import { reasonText } from "./basics";
import { Tile, Tiles } from "./tiles";

/** Reasons of runs that did not fail: they were cancelled or skipped. */
const endedOnPurpose = new Set(["killed", "discarded", "covered", "job_deleted"]);
export const count = (n: number): string => n.toLocaleString("en-US");
const percent = (rate: number): string => `${(Math.floor(rate * 10_000) / 100).toFixed(rate === 1 ? 0 : 2)}%`;

/** OverviewTiles are the numbers of the overview. */
export function OverviewTiles({
  of: o,
  group,
  stale,
  at,
}: {
  of: Answer<"/api/v1/overview", "get">;
  group?: string;
  stale: boolean;
  at: number;
}) {
  const t = useT();
  return (
    <Tiles stale={stale} at={at} line>
      <Tile
        name={t("overview.failed")}
        value={count(o.counts.failed)}
        bad={o.counts.failed > 0}
        href={`/runs${search({ state: "failed", from: o.from, group })}`}
        note={Object.entries(o.counts.reasons)
          .filter(([r]) => !endedOnPurpose.has(r))
          .sort((a, b) => b[1] - a[1])
          .slice(0, 2)
          .map(([r, n]) => `${reasonText(t, r)} ${n}`)
          .join(" · ")}
      />
      <Tile name={t("overview.missed")} value={count(o.missed)} bad={o.missed > 0} />
      <Tile
        roomy
        name={t("overview.rate")}
        value={o.counts.success_rate == null ? "–" : percent(o.counts.success_rate)}
        note={t("overview.runs", { n: count(o.counts.runs) })}
      />
      <Tile
        roomy
        name={t("overview.late")}
        value={o.counts.lateness_p50_ms == null ? "–" : shortDuration(o.counts.lateness_p50_ms)}
        note={o.counts.lateness_p99_ms == null ? "" : `p99 ${shortDuration(o.counts.lateness_p99_ms)}`}
      />
      <Tile
        name={t("overview.now")}
        value={o.now.running}
        note={t("overview.queued", { q: o.now.queued, r: o.now.retrying, h: o.now.held })}
        href={`/runs${search({ state: "queued,running,retrying", group })}`}
      />
      <Tile
        name={t("overview.instances")}
        value={o.now.instances}
        bad={o.now.instances === 0}
        note={
          t("overview.slots", { used: o.now.slots_used, n: o.now.slots }) +
          (o.now.draining ? ` · ${t("overview.draining", { n: o.now.draining })}` : "")
        }
        href="/executors"
      />
    </Tiles>
  );
}
