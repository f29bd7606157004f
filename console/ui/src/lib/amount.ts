const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** amount writes a number with separators, or a number of bytes with a unit. */
export function amount(n: number, bytes = false): string {
  if (!bytes) return n.toLocaleString("en-US");
  let unit = 0;
  let value = n;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 || value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
