export interface GraphJob {
  id: number;
  /** Absent if the viewer may not see the job. */
  name?: string;
  group?: string;
  enabled: boolean;
  children: { id: number; on: string }[];
}

export interface Node {
  id: number;
  name?: string;
  group?: string;
  enabled: boolean;
  level: number;
  row: number;
}

export interface Graph {
  nodes: Node[];
  edges: { from: number; to: number; on: string }[];
  levels: number;
  rows: number;
}

/**
 * layOut places a job, its parents and its descendants in columns from left to right. A job with several paths is in the last
 * possible column. In a cycle, a job stays in its first column.
 */
export function layOut(job: number, known: GraphJob[]): Graph {
  const by = new Map(known.map((j) => [j.id, j]));
  const level = new Map<number, number>([[job, 0]]);
  for (const j of known) if (j.id !== job && j.children.some((c) => c.id === job)) level.set(j.id, -1);
  let wave = [job];
  for (let depth = 1; wave.length > 0 && depth <= known.length; depth++) {
    const next = new Set(
      wave
        .flatMap((id) => by.get(id)?.children.map((c) => c.id) ?? [])
        .filter((id) => by.has(id) && (level.get(id) ?? depth) > 0 && id !== job),
    );
    for (const id of next) level.set(id, depth);
    wave = [...next];
  }
  const first = Math.min(0, ...level.values());
  const filled = new Map<number, number>();
  const nodes = [...level]
    .sort((a, b) => a[1] - b[1] || a[0] - b[0])
    .map(([id, l]) => {
      const row = filled.get(l) ?? 0;
      filled.set(l, row + 1);
      const j = by.get(id);
      return { id, name: j?.name, group: j?.group, enabled: j?.enabled ?? true, level: l - first, row };
    });
  const edges = known
    .filter((j) => level.has(j.id))
    .flatMap((j) => j.children.filter((c) => level.has(c.id)).map((c) => ({ from: j.id, to: c.id, on: c.on })));
  return { nodes, edges, levels: 1 + Math.max(0, ...nodes.map((n) => n.level)), rows: Math.max(1, ...filled.values()) };
}

/**
 * stack places the nodes of a graph below each other, for a narrow window: the parents of the job, the job, and below each job its children. A job
 * with several parents is below the first one in the column before its own.
 */
export function stack(g: Graph, job: number): Graph {
  const by = new Map(g.nodes.map((n) => [n.id, n]));
  const here = by.get(job)?.level ?? 0;
  const order = g.nodes.filter((n) => n.level < here);
  const placed = new Set(order.map((n) => n.id));
  const place = (n: Node) => {
    if (placed.has(n.id)) return;
    placed.add(n.id);
    order.push(n);
    for (const e of g.edges) {
      const to = by.get(e.to);
      if (e.from === n.id && to?.level === n.level + 1) place(to);
    }
  };
  for (const n of g.nodes) place(n);
  return { ...g, nodes: order.map((n, row) => ({ ...n, row })), rows: order.length };
}
