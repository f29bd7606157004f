import type { Schemas } from "../api/client";

export type Item = Schemas["AttentionItem"];

/** kinds are the kinds of items, the most urgent first. */
export const kinds = [
  "server_unavailable",
  "postgres_blocked",
  "postgres_connections",
  "role_missing",
  "process_missing",
  "job_failing",
  "group_without_executors",
  "backlog",
  "missed",
  "alert_undelivered",
  "dead_letters",
] as const;
export type Kind = (typeof kinds)[number];

export const isKind = (kind: string): kind is Kind => (kinds as readonly string[]).includes(kind);

/** A kind of a newer server is last. */
const urgency = (item: Item) => (isKind(item.kind) ? kinds.indexOf(item.kind) : kinds.length);

/** grouped returns the items of a group (undefined: of all), the most urgent first, with the acknowledged ones apart. */
export function grouped(items: Item[], group?: string): { open: Item[]; acked: Item[] } {
  const sorted = items.filter((i) => !group || i.group === group).sort((a, b) => urgency(a) - urgency(b));
  return { open: sorted.filter((i) => !i.acknowledged), acked: sorted.filter((i) => i.acknowledged) };
}

/** engineKinds are the kinds of items about servers and roles, which belong to no group. */
export const engineKinds: readonly string[] = kinds.slice(0, kinds.indexOf("job_failing"));

/** nameOf is what an item is about: the failing job, the channel, or the group. It is empty for dead letters, servers and roles. */
export function nameOf(item: Item): string {
  if (item.kind === "job_failing") return item.job_name ?? "";
  if (item.kind === "alert_undelivered") return item.id.slice(`${item.kind}:${item.group}:`.length);
  return item.group;
}
