import type { LogLine } from "../api/client";
import { plain } from "./ansi";

export interface LogFilter {
  text: string;
  levels: string[];
}

/** fits reports whether a line matches the filter. The filter's text must be in lower case. */
export function fits(line: LogLine, f: LogFilter): boolean {
  return (
    (f.levels.length === 0 || f.levels.includes(line.level)) &&
    (f.text === "" || plain(line.text).toLowerCase().includes(f.text))
  );
}

const perAttempt = 1_000_000_000;

/** lineInAttempt returns the number of a line within its attempt: the line with number 1,000,000,003 is line 3 of attempt 2. */
export const lineInAttempt = (n: number): number => ((n - 1) % perAttempt) + 1;
