import type { Schemas } from "../api/client";
import { useT } from "../i18n";
import { dateTime } from "../lib/time";
import { count } from "./overviewtiles";

/** Bars shows runs by outcome over time. The numbers are also in each bar's title and, for screen readers, in a table. */
export function Bars({ points }: { points: Schemas["ReportPoint"][] }) {
  const t = useT();
  const [width, height] = [720, 90];
  const most = Math.max(1, ...points.map((p) => p.runs));
  const w = width / points.length;
  const y = (n: number) => (n / most) * (height - 4);
  return (
    <figure className="bars">
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
        {points.map((p, i) => {
          const rest = p.cancelled + p.skipped;
          let at = height;
          return (
            <g key={p.at}>
              <title>{`${dateTime(p.at)}: ${t("state.succeeded")} ${p.succeeded}, ${t("state.failed")} ${p.failed}, ${t("overview.rest")} ${rest}`}</title>
              <rect x={i * w} y={0} width={w} height={height} fill="transparent" />
              {(
                [
                  ["bar-failed", p.failed],
                  ["bar-rest", rest],
                  ["bar-succeeded", p.succeeded],
                ] as const
              ).map(([c, n]) => {
                if (!n) return null;
                const h = Math.max(y(n), 2);
                at -= h;
                return (
                  <rect key={c} className={c} x={i * w + w * 0.1} y={Math.max(0, at)} width={w * 0.8} height={h} />
                );
              })}
            </g>
          );
        })}
      </svg>
      <figcaption>
        <span>{dateTime(points[0]?.at ?? "").slice(5, 16)}</span>
        <span className="legend">
          <i className="bar-succeeded" />
          {t("state.succeeded")} <i className="bar-failed" />
          {t("state.failed")} <i className="bar-rest" />
          {t("overview.rest")} · {t("overview.most", { n: count(most) })}
        </span>
        <span>{dateTime(points.at(-1)?.at ?? "").slice(5, 16)}</span>
      </figcaption>
      <div className="sr-only">
        <table>
          <thead>
            <tr>
              <th>{t("run.fire")}</th>
              <th>{t("state.succeeded")}</th>
              <th>{t("state.failed")}</th>
              <th>{t("overview.rest")}</th>
            </tr>
          </thead>
          <tbody>
            {points
              .filter((p) => p.runs)
              .map((p) => (
                <tr key={p.at}>
                  <td>{dateTime(p.at)}</td>
                  <td>{p.succeeded}</td>
                  <td>{p.failed}</td>
                  <td>{p.cancelled + p.skipped}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </div>
    </figure>
  );
}
