const bookkeeping = new Set(["version", "updated_at", "created_at", "next_fire_time", "last_fire_time", "health"]);

/** changedFields names the fields that differ between two versions, without those that change with every version. */
export function changedFields(before: unknown, after: unknown): string[] {
  if (!isRecord(before) || !isRecord(after)) return [];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((n) => !bookkeeping.has(n) && JSON.stringify(before[n]) !== JSON.stringify(after[n]));
}

export interface Line {
  kind: "same" | "added" | "removed";
  text: string;
}

/** Difference is a field that differs. Texts of several lines have the lines, other values are written in one line. */
export interface Difference {
  field: string;
  from: string;
  to: string;
  lines?: Line[];
}

/** differences compares two objects field by field. The path of a nested field is written with dots. */
export function differences(before: unknown, after: unknown, path = ""): Difference[] {
  if (JSON.stringify(before) === JSON.stringify(after)) return [];
  if (isRecord(before) || isRecord(after)) {
    const [b, a] = [isRecord(before) ? before : {}, isRecord(after) ? after : {}];
    return [...new Set([...Object.keys(b), ...Object.keys(a)])]
      .filter((n) => path || !bookkeeping.has(n))
      .flatMap((n) => differences(b[n], a[n], path ? `${path}.${n}` : n));
  }
  const [from, to] = [written(before), written(after)];
  if (from === to) return [];
  return [
    { field: path, from, to, ...(from.includes("\n") || to.includes("\n") ? { lines: lineDiff(from, to) } : {}) },
  ];
}

function written(v: unknown): string {
  if (v === undefined || v === null) return "";
  if (typeof v === "string") return v;
  if (Array.isArray(v) && v.every((x) => typeof x === "string")) return v.join(", ");
  return JSON.stringify(v);
}

/** lineDiff keeps the common lines at the beginning and the end, and finds the longest common subsequence between them. */
export function lineDiff(from: string, to: string): Line[] {
  const [a, b] = [from.split("\n"), to.split("\n")];
  let [start, end] = [0, 0];
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const same = (lines: string[]): Line[] => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(a.slice(0, start)),
    ...middle(a.slice(start, a.length - end), b.slice(start, b.length - end)),
    ...same(a.slice(a.length - end)),
  ];
}

/** mostCells bounds the work of a comparison. Longer texts are shown as removed and added. */
const mostCells = 1_000_000;

function middle(a: string[], b: string[]): Line[] {
  const removed = (lines: string[]): Line[] => lines.map((text) => ({ kind: "removed", text }));
  const added = (lines: string[]): Line[] => lines.map((text) => ({ kind: "added", text }));
  if (a.length * b.length > mostCells) return [...removed(a), ...added(b)];
  const length = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  const at = (i: number, j: number) => length[i]?.[j] ?? 0;
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--)
      (length[i] as Uint32Array)[j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1));
  }
  const out: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      out.push({ kind: "same", text: a[i] ?? "" });
      i++;
      j++;
    } else if (at(i + 1, j) >= at(i, j + 1)) out.push({ kind: "removed", text: a[i++] ?? "" });
    else out.push({ kind: "added", text: b[j++] ?? "" });
  }
  return [...out, ...removed(a.slice(i)), ...added(b.slice(j))];
}

const isRecord = (x: unknown): x is Record<string, unknown> => typeof x === "object" && x !== null && !Array.isArray(x);
