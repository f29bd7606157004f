import { afterEach, describe, expect, it, vi } from "vitest";
import { findJobs } from "./findjobs";

afterEach(() => void vi.unstubAllGlobals());

/** answer replaces the server by pages of a list. The last one has no cursor. It returns the requested addresses. */
function answer(pages: number[][]): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", (url: string) => {
    const items = (pages[asked.length] ?? []).map((id) => ({ id }));
    asked.push(url);
    return Promise.resolve(
      new Response(JSON.stringify({ items, next_cursor: asked.length < pages.length ? `c${asked.length}` : "" })),
    );
  });
  return asked;
}

describe("finding jobs", () => {
  it("continues after short and empty pages", async () => {
    const asked = answer([[], [7], [], [9]]);
    expect((await findJobs({ q: "rare", limit: 8 })).map((j) => j.id)).toEqual([7, 9]);
    expect(asked).toEqual([
      "/api/v1/jobs?q=rare&limit=8",
      "/api/v1/jobs?q=rare&limit=8&cursor=c1",
      "/api/v1/jobs?q=rare&limit=8&cursor=c2",
      "/api/v1/jobs?q=rare&limit=8&cursor=c3",
    ]);
  });
  it("stops at the limit", async () => {
    const asked = answer([[1, 2], [3, 4], [5]]);
    expect((await findJobs({ q: "many", limit: 3 })).map((j) => j.id)).toEqual([1, 2, 3]);
    expect(asked.length).toBe(2);
  });
});
