// The icons of the console, and the shapes of the states of runs.
import type { RunState } from "../api/client";

/** Icon draws a path of 16 by 16 pixels. */
export function Icon({ d, size = 16 }: { d: string; size?: number }) {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 16 16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.6"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={d} />
    </svg>
  );
}

export const icons = {
  play: "M5 3.5v9l7-4.5z",
  copy: "M6 6h7v7H6zM10 6V3H3v7h3",
  check: "M3 8.5l3.5 3.5L13 4.5",
  stop: "M4 4h8v8H4z",
  retry: "M13 8a5 5 0 1 1-1.5-3.6M13 2v3h-3",
  edit: "M3 13l.7-3L10.5 3.2l2.3 2.3L6 12.3zM9 4.7l2.3 2.3",
  clone: "M6 6h7v7H6zM10 6V3H3v7h3M9.5 7.8v3.4M7.8 9.5h3.4",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  trash: "M3 4.5h10M6 4V2.5h4V4M4.5 4.5l.6 9h5.8l.6-9",
  down: "M8 2.5v8M4.5 7L8 10.5 11.5 7M3 13.5h10",
  plus: "M8 3v10M3 8h10",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.7 10.7L14 14",
  keyboard: "M1.5 4.5h13v7h-13zM4 7h.01M6.7 7h.01M9.3 7h.01M12 7h.01M5 9.5h6",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6zM8 1.5v1M8 13.5v1M1.5 8h1M13.5 8h1M3.4 3.4l.7.7M11.9 11.9l.7.7M12.6 3.4l-.7.7M4.1 11.9l-.7.7",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  language: "M2 3.5h7M5.5 2v1.5M3 8.5c2.5-1 4-3 4.3-5M3.5 5.5c.8 1.5 2 2.5 4 3M8 14l3-7 3 7M9 12h4",
};

// Each state has its own shape, so that states can be distinguished without colours.
export const shapes: Record<RunState, string> = {
  pending: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z",
  queued: "M3 4.5h10M3 8h10M3 11.5h6",
  running: "M5 3.5v9l7-4.5z",
  retrying: icons.retry,
  succeeded: icons.check,
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM4.2 4.2l7.6 7.6",
  skipped: "M3 4l4.5 4L3 12M8.5 4L13 8l-4.5 4",
};
