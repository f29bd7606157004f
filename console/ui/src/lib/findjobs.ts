import { get, type Answer } from "../api/client";

type Found = Answer<"/api/v1/jobs", "get">["items"];

/** findJobs returns the first matching jobs, up to limit. It reads several pages, because pages with few matches are short or empty. */
export async function findJobs(
  query: { q: string; group?: string; limit: number },
  signal?: AbortSignal,
): Promise<Found> {
  const found: Found = [];
  let cursor: string | undefined;
  do {
    const page = await get("/api/v1/jobs", { query: { ...query, cursor }, signal });
    found.push(...page.items);
    cursor = page.next_cursor || undefined;
  } while (cursor && found.length < query.limit);
  return found.slice(0, query.limit);
}
