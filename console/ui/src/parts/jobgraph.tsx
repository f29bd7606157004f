import { Text } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "wouter";
import { get, type Job } from "../api/client";
import { useT } from "../i18n";
import { layOut, type GraphJob } from "../lib/graph";

const [width, height, across, down] = [168, 40, 92, 14];
/** A larger graph would be unreadable. The pages of the other jobs show the rest. */
const most = 24;

/** JobGraph draws the parents of a job, its children and their children. */
export function JobGraph({ job }: { job: Job }) {
  const t = useT();
  const parents = useParents(job);
  const children = useJobs(
    job.children
      .map((c) => c.job_id)
      .filter((id) => id !== job.id)
      .slice(0, most),
  );
  const further = useJobs(
    [...new Set(children.flatMap((c) => c.children.map((g) => g.id)))]
      .filter((id) => id !== job.id && !children.some((c) => c.id === id))
      .slice(0, most - children.length),
  );
  if (job.children.length === 0 && parents.length === 0)
    return (
      <Text size="sm" c="dimmed">
        {t("graph.none")}
      </Text>
    );
  const known = [graphJob(job), ...children, ...further];
  const g = layOut(job.id, [...known, ...parents.filter((p) => !known.some((k) => k.id === p.id))]);
  const x = (level: number) => 1 + level * (width + across);
  const y = (row: number) => 1 + row * (height + down);
  const at = new Map(g.nodes.map((n) => [n.id, n]));
  return (
    <div className="table-box" role="group" aria-label={t("graph.title")}>
      <svg width={x(g.levels) - across + 1} height={y(g.rows) - down + 1} className="job-graph">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0L8 4L0 8z" className="graph-arrow" />
          </marker>
        </defs>
        {g.edges.map((e) => {
          const [from, to] = [at.get(e.from), at.get(e.to)];
          if (!from || !to || to.level <= from.level) return null;
          const [x1, y1, x2, y2] = [
            x(from.level) + width,
            y(from.row) + height / 2,
            x(to.level) - 2,
            y(to.row) + height / 2,
          ];
          return (
            <g key={`${e.from} ${e.to}`}>
              <path
                className="graph-edge"
                d={`M${x1} ${y1}C${x1 + across / 2} ${y1} ${x2 - across / 2} ${y2} ${x2} ${y2}`}
                markerEnd="url(#arrow)"
              />
              <text className="graph-on" x={x2 - 10} y={to.row > from.row ? y2 + 14 : y2 - 5} textAnchor="end">
                {t(`on.${e.on}` as "on.success")}
              </text>
            </g>
          );
        })}
        {g.nodes.map((n) => {
          const box = (
            <>
              <rect
                x={x(n.level)}
                y={y(n.row)}
                width={width}
                height={height}
                rx="4"
                className={n.id === job.id ? "graph-node graph-here" : "graph-node"}
              />
              <text x={x(n.level) + 10} y={y(n.row) + 17} className="graph-name">
                {cut(n.name ?? `#${n.id}`)}
              </text>
              <text x={x(n.level) + 10} y={y(n.row) + 32} className="graph-group">
                {n.name === undefined
                  ? t("graph.hidden")
                  : [n.group, n.enabled ? "" : t("job.disabled")].filter(Boolean).join(" · ")}
              </text>
              {n.name !== undefined && <title>{n.name}</title>}
            </>
          );
          return n.id === job.id || n.name === undefined ? (
            <g key={n.id}>{box}</g>
          ) : (
            <Link key={n.id} href={`/jobs/${n.id}`} aria-label={n.name}>
              {box}
            </Link>
          );
        })}
      </svg>
    </div>
  );
}

const cut = (name: string) => (name.length > 22 ? `${name.slice(0, 21)}…` : name);
const graphJob = (j: Job): GraphJob => ({
  id: j.id,
  name: j.name,
  group: j.group,
  enabled: j.enabled,
  children: j.children.map((c) => ({ id: c.job_id, on: c.on ?? "success" })),
});

function useJobs(ids: number[]): GraphJob[] {
  return useQueries({
    queries: ids.map((id) => ({
      queryKey: ["job", id],
      queryFn: () => get("/api/v1/jobs/{id}", { path: { id } }),
      staleTime: 30_000,
      retry: false,
    })),
  }).map((q, i) => (q.data ? graphJob(q.data) : { id: ids[i] ?? 0, enabled: true, children: [] }));
}

/** useParents returns the jobs that have this one as a child. */
function useParents(job: Job): GraphJob[] {
  const parents = useQuery({
    queryKey: ["jobs", "parents", job.id],
    queryFn: () => get("/api/v1/jobs", { query: { child_id: job.id, limit: most } }),
    refetchInterval: 15_000,
    retry: false,
  });
  return parents.data?.items.filter((p) => p.id !== job.id).map(graphJob) ?? [];
}
