// The difference between two versions of a job, from the audit log.
import type { Schemas } from "../api/client";
import { differences, type Difference } from "./changes";

type Change = Schemas["Change"];

export interface VersionChange {
  /** Who made the versions after the first one, newest first. */
  by: { version: number; actor: string; at: string }[];
  fields: Difference[];
}

const versionOf = (job: unknown): number | undefined => {
  const v = typeof job === "object" && job !== null ? (job as { version?: unknown }).version : undefined;
  return typeof v === "number" ? v : undefined;
};

/** between compares two versions of a job. It returns undefined if the changes, which are the newest ones, do not reach back to the first version. */
export function between(changes: Change[], from: number, to: number): VersionChange | undefined {
  const made = changes.filter((c) => {
    const v = versionOf(c.after);
    return v !== undefined && v > from && v <= to;
  });
  const [newest, oldest] = [made[0], made.at(-1)];
  const before = versionOf(oldest?.before);
  if (!newest || !oldest || before === undefined || before > from) return undefined;
  return {
    by: made.map((c) => ({ version: versionOf(c.after) ?? 0, actor: c.actor, at: c.at })),
    fields: differences(oldest.before, newest.after),
  };
}

/** parseVersions reads "3-5", as the address of a job's page has it. */
export function parseVersions(text: string): { from: number; to: number } | undefined {
  const found = /^(\d{1,9})-(\d{1,9})$/.exec(text);
  if (!found) return undefined;
  const [from, to] = [Number(found[1]), Number(found[2])];
  return from < to ? { from, to } : undefined;
}
