// The runs that a bulk action changes. The server does the work: see the pages /bulk and /bulk/ID.
import type { Schemas } from "../api/client";
import { final } from "./states";

export type RunAction = "kill" | "retry";
export type BulkFilter = Schemas["BulkFilter"];
export type BulkAction = Schemas["BulkAction"];

/** If an action would change more runs than this, the user types their number before it starts. */
export const typedAbove = 100;

type Filters = Partial<
  Record<
    "job_id" | "group" | "state" | "cause" | "reason" | "instance" | "from" | "to" | "planned" | "q" | "bulk_id",
    string
  >
>;

/**
 * bulkFilter returns the runs of a list to which an action can apply: a kill to unfinished ones, a retry to final ones. It returns undefined
 * if the list has none of them, or if the server cannot select them: those of a text search. A list that hides planned runs leaves them out here too: they are after now.
 */
export function bulkFilter(action: RunAction, f: Filters, now: Date): BulkFilter | undefined {
  if (f.q || f.bulk_id) return undefined;
  const chosen = f.state ? f.state.split(",") : [];
  const state = chosen.filter((s) => final(s) === (action === "retry"));
  if (chosen.length > 0 && state.length === 0) return undefined;
  const out: BulkFilter = {};
  if (state.length > 0) out.state = state;
  if (f.job_id) out.job_id = Number(f.job_id);
  for (const name of ["group", "cause", "reason", "instance", "from", "to"] as const) if (f[name]) out[name] = f[name];
  if (Object.keys(out).length === 0) return undefined; // the server refuses a filter that matches every run
  if (action === "kill" && !out.to && !showsPlanned(f)) out.to = now.toISOString();
  return out;
}

/** showsPlanned reports whether a list with these filters has runs that are not due yet. Whoever selects the state pending wants to see them. */
export const showsPlanned = (f: Filters): boolean =>
  f.planned === "true" || (f.state ?? "").split(",").includes("pending");

/** ended reports whether an action does nothing more. */
export const ended = (a: Pick<BulkAction, "state">) => ["done", "stopped", "failed"].includes(a.state);

/** processed is the number of runs that an action has worked on. */
export const processed = ({ counts }: Pick<BulkAction, "counts">) => counts.done + counts.skipped + counts.failed;

/** runCount writes the number of matching runs. A lower bound ends in +. */
export const runCount = (of: { matched: number; at_least?: boolean }): string =>
  `${of.matched}${of.at_least ? "+" : ""}`;
