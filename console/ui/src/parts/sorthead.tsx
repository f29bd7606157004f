import { useT } from "../i18n";

/** The orders of the list of jobs. The server gives each one a fixed direction. */
export const jobOrders = ["name", "failing_since", "last_failure", "next_fire_time", "p95_ms"] as const;
export type JobOrder = (typeof jobOrders)[number];
const direction = {
  name: "ascending",
  failing_since: "ascending",
  last_failure: "descending",
  next_fire_time: "ascending",
  p95_ms: "descending",
} as const;

export const isJobOrder = (s: string): s is JobOrder => (jobOrders as readonly string[]).includes(s);

/** SortHead is the head of a column. It sorts the list by the column, or ends the sort. */
export function SortHead({
  by,
  label,
  sort,
  onSort,
  className,
}: {
  by: JobOrder;
  label: string;
  sort: string;
  onSort: (by: string) => void;
  className?: string;
}) {
  const t = useT();
  const on = sort === by;
  return (
    <th className={className} aria-sort={on ? direction[by] : undefined}>
      <button
        type="button"
        className="sort-head"
        aria-pressed={on}
        title={t(`jobs.sort.${by}`)}
        onClick={() => onSort(on ? "" : by)}
      >
        {label}
        <span aria-hidden="true">{on ? (direction[by] === "ascending" ? " ↑" : " ↓") : ""}</span>
      </button>
    </th>
  );
}
