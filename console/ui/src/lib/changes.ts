const bookkeeping = new Set(["version", "updated_at", "created_at", "next_fire_time", "last_fire_time"]);

/** changedFields names the fields that differ between two versions, without those that change with every version. */
export function changedFields(before: unknown, after: unknown): string[] {
  if (!isRecord(before) || !isRecord(after)) return [];
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((n) => !bookkeeping.has(n) && JSON.stringify(before[n]) !== JSON.stringify(after[n]));
}

const isRecord = (x: unknown): x is Record<string, unknown> => typeof x === "object" && x !== null && !Array.isArray(x);
