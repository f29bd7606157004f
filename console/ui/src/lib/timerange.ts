// Ranges of time that a list offers with one click.

export const presets = ["1h", "24h", "night", "7d"] as const;
export type Preset = (typeof presets)[number];

const hour = 3_600_000;
const hours: Record<Exclude<Preset, "night">, number> = { "1h": 1, "24h": 24, "7d": 7 * 24 };

/**
 * range returns the range of a preset. An empty to means that the range has no end, so that the list stays live. The last night is in the
 * viewer's time zone: from 18:00 of the day before until 08:00.
 */
export function range(preset: Preset, now: Date): { from: string; to: string } {
  if (preset !== "night") return { from: new Date(now.getTime() - hours[preset] * hour).toISOString(), to: "" };
  const at = (days: number, hour: number) => new Date(now.getFullYear(), now.getMonth(), now.getDate() + days, hour);
  const morning = at(0, 8);
  return { from: at(-1, 18).toISOString(), to: now < morning ? "" : morning.toISOString() };
}
