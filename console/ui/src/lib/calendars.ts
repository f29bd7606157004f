import { useQuery } from "@tanstack/react-query";
import { get, type Schemas } from "../api/client";

export type Calendar = Schemas["Calendar"];

/** newCalendar is the name in the address of a new calendar's form. The names of calendars cannot contain a plus. */
export const newCalendar = "+new";

/** useCalendars reads all calendars, ordered by name. */
export function useCalendars() {
  return useQuery({
    queryKey: ["calendars"],
    queryFn: ({ signal }) => allCalendars(signal),
    staleTime: 5000,
    refetchInterval: 60_000,
  });
}

async function allCalendars(signal?: AbortSignal): Promise<Calendar[]> {
  const all: Calendar[] = [];
  let cursor: string | undefined;
  do {
    const page = await get("/api/v1/calendars", { query: { limit: 500, cursor }, signal });
    all.push(...page.items);
    cursor = page.next_cursor || undefined;
  } while (cursor);
  return all;
}
