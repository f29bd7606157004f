// What differs between a failed run and the last success of its job.
import type { Job, RunDetail } from "../api/client";
import type { Explanation } from "../i18n/explain";

type Health = NonNullable<Job["health"]>;
type Failed = Pick<RunDetail, "id" | "instance" | "attempts">;

/**
 * changesSince returns what changed between the last success of a job and a later failure. The server compares the newest failure only. For an
 * earlier one, the instances and the versions of the executors are compared.
 */
export function changesSince(health: Health, run: Failed): Explanation[] {
  if (health.last_failure?.run_id === run.id) return health.changes ?? [];
  const good = health.last_success;
  if (!good) return [];
  const bad = run.attempts.at(-1);
  const differ = (code: "executor_changed" | "instance_changed", from = "", to = ""): Explanation[] =>
    from && to && from !== to ? [{ code, args: { from, to }, text: `${from} → ${to}` }] : [];
  return [
    ...differ("executor_changed", good.executor_version, bad?.executor_version),
    ...differ("instance_changed", good.instance, bad?.instance || run.instance),
  ];
}
