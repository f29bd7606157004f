import { Anchor, Button, Text } from "@mantine/core";
import { useInfiniteQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { get, search, type Answer, type Run } from "../api/client";
import { useT } from "../i18n";
import { showsPlanned } from "../lib/bulk";
import { useFilters, useListKeys, useNow, useTitle } from "../lib/hooks";
import { useHeld, useInside } from "../lib/held";
import { merge, useRunStream } from "../lib/live";
import { useMay } from "../lib/me";
import { dateTime } from "../lib/time";
import { Empty, ErrorNote, PageHead } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { RunBulkBar } from "../parts/runbulkbar";
import { runFilters, RunFilters } from "../parts/runfilters";
import { RunTable } from "../parts/runtable";

export default function Runs() {
  const t = useT();
  useTitle(t("nav.runs"));
  useListKeys();
  const may = useMay();
  const now = useNow();
  const [f, setF] = useFilters(runFilters);
  const [wanted, setLive] = useState(true);
  const streamed = !f.q && !f.bulk_id; // the stream has neither filter
  const live = wanted && streamed;
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const { inside, events } = useInside();
  const hold = inside || chosen.size > 0;
  const late = useRef(false); // the list must be read again, after the reader has left it
  useEffect(() => setChosen(new Set()), [f]); // an action must not apply to runs that are no longer shown
  const client = useQueryClient();
  const list = useInfiniteQuery({
    queryKey: ["runs", f],
    queryFn: ({ pageParam, signal }) =>
      get("/api/v1/runs", {
        query: {
          ...f,
          job_id: f.job_id ? Number(f.job_id) : undefined,
          bulk_id: f.bulk_id ? Number(f.bulk_id) : undefined,
          planned: showsPlanned(f),
          limit: 100,
          cursor: pageParam,
        } as never,
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (p) => p.next_cursor || undefined,
    placeholderData: (before) => before,
    refetchInterval: (q) => (live && !hold && (q.state.data?.pages.length ?? 0) <= 1 ? 30_000 : false),
  });
  const put = (changed: Map<string, Run>, gone: ReadonlySet<string>, add: boolean) => {
    let long = false;
    client.setQueryData<InfiniteData<Answer<"/api/v1/runs", "get">>>(
      ["runs", f],
      (before) =>
        before && {
          ...before,
          // If older pages are shown, new runs are not added, because the list would move under the reader.
          pages: before.pages.map((p) => {
            const items = merge(p.items, changed, add && before.pages.length === 1).filter((r) => !gone.has(r.id));
            long ||= items.length > 400;
            return { ...p, items };
          }),
        },
    );
    if (long) void list.refetch();
  };
  const runs = list.data?.pages.flatMap((p) => p.items) ?? [];
  const { held, take, release, forget } = useHeld(hold, (fresh) => put(fresh, new Set(), true));
  const reread = () => {
    if (hold) late.current = true;
    else if ((list.data?.pages.length ?? 0) <= 1) void list.refetch();
  };
  const status = useRunStream(
    live ? search({ ...f, planned: undefined, q: undefined, bulk_id: undefined }) : undefined,
    (changed, gone) => {
      put(changed, gone, !hold);
      const known = new Set(runs.map((r) => r.id));
      if (hold && (list.data?.pages.length ?? 0) <= 1)
        take(
          [...changed.values()].filter((r) => !known.has(r.id)),
          gone,
        );
    },
    reread,
  );
  useEffect(() => {
    if (hold || !late.current) return;
    late.current = false;
    reread();
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- only the end of hold matters
  }, [hold]);
  // oxlint-disable-next-line react-hooks/exhaustive-deps -- forget is the same in each render
  useEffect(forget, [f]);
  const searched = list.data?.pages.at(-1)?.searched_back_to;
  const filtered = runFilters.some((n) => f[n]);

  return (
    <>
      <PageHead title={t("nav.runs")}>
        {streamed && (
          <>
            <Text size="xs" c="dimmed" role="status">
              {t(live ? (status === "live" ? "live.on" : "live.connecting") : "live.off")}
            </Text>
            <Button
              size="xs"
              variant="default"
              aria-pressed={!live}
              onClick={() => {
                setLive(!live);
                if (!live) void list.refetch();
              }}
              leftSection={<Icon d={live ? icons.pause : icons.play} size={14} />}
            >
              {t(live ? "live.pause" : "live.go")}
            </Button>
          </>
        )}
      </PageHead>
      <RunFilters f={f} set={setF} jobName={runs[0]?.job_name} />
      {may.operate && <RunBulkBar f={f} runs={runs} chosen={chosen} clear={() => setChosen(new Set())} />}
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data &&
        runs.length === 0 &&
        (filtered ? (
          <Empty title={t("runs.nofit")}>
            <Anchor
              component="button"
              size="sm"
              onClick={() => setF(Object.fromEntries(runFilters.map((n) => [n, ""])))}
            >
              {t("clear.filters")}
            </Anchor>
          </Empty>
        ) : (
          <Empty title={t("runs.none")}>
            <Text size="sm">{t("runs.teach")}</Text>
          </Empty>
        ))}
      <div className="held">
        {held.size > 0 && (
          <button
            type="button"
            className="chip"
            onClick={() => {
              release();
              scrollTo({ top: 0 });
            }}
          >
            {t("live.new", { n: held.size })}
          </button>
        )}
      </div>
      {runs.length > 0 && (
        <div {...events}>
          <RunTable
            runs={runs}
            now={now}
            chosen={chosen}
            onChoose={
              may.operate
                ? (id, on) =>
                    setChosen((c) => {
                      const n = new Set(c);
                      if (on) n.add(id);
                      else n.delete(id);
                      return n;
                    })
                : undefined
            }
          />
        </div>
      )}
      {f.q && list.data && !list.isPlaceholderData && (
        <Text size="sm" mt="sm" role="status">
          {list.hasNextPage && searched ? t("runs.searched", { at: dateTime(searched) }) : t("runs.searched.all")}
        </Text>
      )}
      {list.hasNextPage && (
        <Button
          mt="sm"
          size="xs"
          variant="default"
          loading={list.isFetchingNextPage}
          onClick={() => void list.fetchNextPage()}
        >
          {t(f.q ? "runs.search.more" : "load.more")}
        </Button>
      )}
    </>
  );
}
