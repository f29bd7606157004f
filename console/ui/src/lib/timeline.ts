import type { Schemas } from "../api/client";

export type Step = {
  kind: "fire" | "due" | "dispatched" | "started" | "finished";
  at: string;
  attempt?: number;
  attemptOf?: Schemas["Attempt"];
};
/** Gap is the kind of time between two steps. */
export type Gap = "jitter" | "waited" | "offered" | "ran" | "backoff" | "planned";

export interface Entry {
  step: Step;
  /** The kind and the length of the time since the previous step. */
  gap?: { kind: Gap; ms: number };
}

type Source = Pick<
  Schemas["RunDetail"],
  "fire_time" | "due_at" | "created_at" | "attempts" | "attempt" | "dispatched_at" | "started_at" | "finished_at"
>;

/** timeline puts the steps of a run in order and names the gaps between them. */
export function timeline(run: Source): Entry[] {
  const steps: Step[] = [];
  if (run.fire_time) steps.push({ kind: "fire", at: run.fire_time });
  else steps.push({ kind: "fire", at: run.created_at });
  // During the first attempt, due_at is the due instant of the run. Later it is that of the latest attempt.
  if (run.due_at && run.attempt === 1 && run.due_at !== steps[0]?.at) steps.push({ kind: "due", at: run.due_at });
  for (const a of attemptsOf(run)) {
    if (a.dispatched_at) steps.push({ kind: "dispatched", at: a.dispatched_at, attempt: a.attempt, attemptOf: a });
    if (a.started_at) steps.push({ kind: "started", at: a.started_at, attempt: a.attempt, attemptOf: a });
    if (a.finished_at) steps.push({ kind: "finished", at: a.finished_at, attempt: a.attempt, attemptOf: a });
  }
  return steps.map((step, i) => {
    const before = steps[i - 1];
    if (!before) return { step };
    return { step, gap: { kind: gapOf(before, step), ms: Date.parse(step.at) - Date.parse(before.at) } };
  });
}

/** attemptsOf returns the attempts of a run, with the present one. */
function attemptsOf(run: Source): Schemas["Attempt"][] {
  if (run.attempts.some((a) => a.attempt === run.attempt) || !run.dispatched_at) return run.attempts;
  const present = {
    attempt: run.attempt,
    instance: "",
    dispatched_at: run.dispatched_at,
    started_at: run.started_at,
    finished_at: run.finished_at,
    outcome: "",
    reason: "",
    message: "",
  };
  return [...run.attempts, present];
}

/** AttemptSpan is an attempt with its duration, and its place between the first attempt's beginning and the last one's end. */
export interface AttemptSpan {
  of: Schemas["Attempt"];
  /** The beginning and the length as parts of the total, 0 to 1. */
  from: number;
  share: number;
  ms: number;
  open: boolean;
}

/** attemptSpans compares the attempts of a run. total is the time in milliseconds from the first one's beginning to the last one's end, or to now. */
export function attemptSpans(run: Source, now: Date): { spans: AttemptSpan[]; total: number } {
  const times = attemptsOf(run).flatMap((of) => {
    const begin = of.started_at ?? of.dispatched_at;
    if (!begin) return [];
    const open = !of.finished_at;
    const from = Date.parse(begin);
    return [{ of, open, from, to: Math.max(from, of.finished_at ? Date.parse(of.finished_at) : now.getTime()) }];
  });
  const begin = Math.min(...times.map((t) => t.from));
  const total = times.length > 0 ? Math.max(...times.map((t) => t.to)) - begin : 0;
  const part = (ms: number) => (total > 0 ? ms / total : 0);
  return {
    total,
    spans: times.map(({ of, open, from, to }) => ({
      of,
      open,
      ms: to - from,
      from: part(from - begin),
      share: part(to - from),
    })),
  };
}

function gapOf(before: Step, step: Step): Gap {
  switch (step.kind) {
    case "fire":
      return "planned";
    case "due":
      return "jitter";
    case "dispatched":
      return before.kind === "finished" ? "backoff" : "waited";
    case "started":
      return before.kind === "dispatched" ? "offered" : "waited";
    case "finished":
      return before.kind === "started" ? "ran" : "waited";
  }
}
