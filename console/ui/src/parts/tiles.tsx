import { Text } from "@mantine/core";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { useT } from "../i18n";
import { useNow } from "../lib/hooks";
import { clock } from "../lib/time";

/** Numbers older than this are stale if the page is not connected. The server pushes the overview every few seconds. */
const fresh = 15_000;

/** useStale reports whether numbers are not the present ones: a request failed, they are of another filter, or nothing arrives. */
export function useStale(query: UseQueryResult<unknown>, disconnected = false): boolean {
  const now = useNow().getTime();
  return query.isError || query.isPlaceholderData || (disconnected && now - query.dataUpdatedAt > fresh);
}

/** Tiles is a row of numbers. If line is true, they stay on one line. Stale numbers are pale, and the row says how old they are. */
export function Tiles({
  stale,
  at,
  line = false,
  children,
}: {
  stale: boolean;
  at: number;
  line?: boolean;
  children: ReactNode;
}) {
  const t = useT();
  const now = useNow();
  return (
    <>
      <div className={`tiles${line ? " tiles-line" : ""}${stale ? " tiles-stale" : ""}`}>{children}</div>
      <Text size="xs" className="stale-note" role="status">
        {stale && at > 0 ? t("tiles.stale", { at: clock(new Date(at), now) }) : ""}
      </Text>
    </>
  );
}

/** Tile is a number with its name and a note. A roomy tile is left out of a line on a phone. */
export function Tile({
  name,
  value,
  note,
  bad,
  warn,
  href,
  roomy = false,
}: {
  name: string;
  value: ReactNode;
  note?: string;
  bad?: boolean;
  warn?: boolean;
  href?: string;
  roomy?: boolean;
}) {
  const inner = (
    <>
      <span className="tile-name">{name}</span>
      <span className={`tile-value ${bad ? "bad" : warn ? "warn" : ""}`}>{value}</span>
      <span className="tile-note" title={note}>
        {note || " "}
      </span>
    </>
  );
  const look = roomy ? "tile roomy" : "tile";
  return href ? (
    <Link href={href} className={look}>
      {inner}
    </Link>
  ) : (
    <div className={look}>{inner}</div>
  );
}
