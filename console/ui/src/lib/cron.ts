// Positions in cron expressions. Only the server interprets expressions.

export interface Field {
  text: string;
  /** The position of its first character, from 0. */
  start: number;
}

/** fields splits an expression as the server does. */
export function fields(expr: string): Field[] {
  return [...expr.matchAll(/\S+/g)].map((m) => ({ text: m[0], start: m.index }));
}

/** faultyFields returns the numbers, from 0, of the fields that the server's message names: "… in field 5, column 9". */
export function faultyFields(message: string | undefined): number[] {
  return [...(message ?? "").matchAll(/in field (\d+)/g)].map((m) => Number(m[1]) - 1);
}

export type FieldName = "second" | "minute" | "hour" | "dom" | "month" | "dow" | "year";

/** fieldNames returns the names of the fields of an expression with count fields. */
export function fieldNames(count: number, dialect: "standard" | "quartz"): FieldName[] {
  if (dialect === "quartz") {
    const six: FieldName[] = ["second", "minute", "hour", "dom", "month", "dow"];
    return count >= 7 ? [...six, "year"] : six;
  }
  const five: FieldName[] = ["minute", "hour", "dom", "month", "dow"];
  return count >= 6 ? ["second", ...five] : five;
}

/** fieldAt returns the number of the field that a caret is in, or -1. */
export function fieldAt(expr: string, caret: number): number {
  return fields(expr).findIndex((f) => caret >= f.start && caret <= f.start + f.text.length);
}
