import { Text } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useQueries, useQuery } from "@tanstack/react-query";
import type { RefObject } from "react";
import { Link } from "wouter";
import { get, type Job } from "../api/client";
import { useT, type Translate } from "../i18n";
import { layOut, stack, type Graph, type GraphJob, type Node } from "../lib/graph";

const [width, height, across, down] = [168, 40, 92, 14];
/** In a narrow window, the jobs are below each other, and the column of a job is its indentation. */
const [indent, widest] = [22, 420];
/** A larger graph would be unreadable. The pages of the other jobs show the rest. */
const most = 24;

/** JobGraph draws the parents of a job, its children and their children. */
export function JobGraph({ job }: { job: Job }) {
  const t = useT();
  const { ref, width: room } = useElementSize<HTMLDivElement>();
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
  const known = [graphJob(job), ...children, ...further];
  const wide = layOut(job.id, [...known, ...parents.filter((p) => !known.some((k) => k.id === p.id))]);
  return (
    <div ref={ref as RefObject<HTMLDivElement>} className="table-box" role="group" aria-label={t("graph.title")}>
      {job.children.length === 0 && parents.length === 0 ? (
        <Text size="sm" c="dimmed">
          {t("graph.none")}
        </Text>
      ) : (
        room > 0 && <Drawing graph={wide} job={job.id} room={room} />
      )}
    </div>
  );
}

/** Drawing draws a graph from left to right or, if it has no room for that, from top to bottom. */
function Drawing({ graph, job, room }: { graph: Graph; job: number; room: number }) {
  const t = useT();
  const breadth = graph.levels * (width + across) - across + 2;
  const stacked = breadth > room;
  const g = stacked ? stack(graph, job) : graph;
  const x = (n: Node) => 1 + n.level * (stacked ? indent : width + across);
  const y = (n: Node) => 1 + n.row * (height + down);
  const w = (n: Node) => (stacked ? Math.min(room, widest) - x(n) - 1 : width);
  const at = new Map(g.nodes.map((n) => [n.id, n]));
  const edges = g.edges.flatMap((e) => {
    const [from, to] = [at.get(e.from), at.get(e.to)];
    return from && to && to.level > from.level ? [{ on: t(`on.${e.on}` as "on.success"), from, to }] : [];
  });
  return (
    <svg
      width={stacked ? Math.min(room, widest) : breadth}
      height={1 + g.rows * (height + down) - down + 1}
      className="job-graph"
    >
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0L8 4L0 8z" className="graph-arrow" />
        </marker>
      </defs>
      {edges.map(({ from, to, on }) => {
        const [x2, y2] = [x(to) - 2, y(to) + height / 2];
        if (stacked) {
          const [x1, y1] = [x(from) + 8, to.row > from.row ? y(from) + height : y(from)];
          return (
            <path
              key={`${from.id} ${to.id}`}
              className="graph-edge"
              d={`M${x1} ${y1}V${y2}H${x2}`}
              markerEnd="url(#arrow)"
            />
          );
        }
        const [x1, y1] = [x(from) + width, y(from) + height / 2];
        return (
          <g key={`${from.id} ${to.id}`}>
            <path
              className="graph-edge"
              d={`M${x1} ${y1}C${x1 + across / 2} ${y1} ${x2 - across / 2} ${y2} ${x2} ${y2}`}
              markerEnd="url(#arrow)"
            />
            <text
              className="graph-on"
              {...(to.id === job ? { x: x1 + 8, y: y1 - 5 } : ends(x2, y2, to.row > from.row))}
            >
              {on}
            </text>
          </g>
        );
      })}
      {g.nodes.map((n) => {
        const ons = stacked ? [...new Set(edges.filter((e) => e.to.id === n.id).map((e) => e.on))] : [];
        const on = ons.join(" / ");
        const shown = texts(t, n, w(n), on);
        const box = <Box node={n} x={x(n)} y={y(n)} width={w(n)} texts={shown} on={on} here={n.id === job} />;
        if (n.id === job || n.name === undefined) return <g key={n.id}>{box}</g>;
        // The name of the link contains its visible text, for users who control the console by voice.
        const says = [n.name === shown.name ? "" : n.name, shown.name, shown.group, on].filter(Boolean).join(" ");
        return (
          <Link key={n.id} href={`/jobs/${n.id}`} aria-label={says}>
            {box}
          </Link>
        );
      })}
    </svg>
  );
}

/** ends is the place of the label of an edge at its end. The label of a parent is at the beginning, because all its edges may end at the job. */
const ends = (x: number, y: number, below: boolean) =>
  ({ x: x - 10, y: below ? y + 14 : y - 5, textAnchor: "end" }) as const;

interface Place {
  node: Node;
  x: number;
  y: number;
  width: number;
  texts: { name: string; group: string };
  /** When it runs after its parents, if this is not written at the edges. */
  on: string;
  here: boolean;
}

/** texts is what a box says, cut to its width. */
function texts(t: Translate, n: Node, width: number, on: string) {
  const letters = Math.floor((width - 20) / 7);
  const group =
    n.name === undefined
      ? t("graph.hidden")
      : [n.group, n.enabled ? "" : t("job.disabled")].filter(Boolean).join(" · ");
  return { name: cut(n.name ?? `#${n.id}`, letters), group: cut(group, letters - (on ? on.length + 2 : 0)) };
}

/** Box is a job of a graph. The spaces between its texts are not drawn, but separate their words. */
function Box({ node: n, x, y, width, texts: { name, group }, on, here }: Place) {
  return (
    <>
      <rect
        x={x}
        y={y}
        width={width}
        height={height}
        rx="4"
        className={here ? "graph-node graph-here" : "graph-node"}
      />
      <text x={x + 10} y={y + 17} className="graph-name">
        {name}
      </text>{" "}
      <text x={x + 10} y={y + 32} className="graph-group">
        {group}
      </text>{" "}
      {on && (
        <text x={x + width - 10} y={y + 32} className="graph-on" textAnchor="end">
          {on}
        </text>
      )}
      {n.name !== undefined && <title>{n.name}</title>}
    </>
  );
}

const cut = (text: string, letters: number) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
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
