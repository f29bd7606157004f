import { Anchor, Button, Group, Text } from "@mantine/core";
import { useInfiniteQuery, useQueryClient, type InfiniteData } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { get, search, type Answer, type Run } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useNow, useTitle } from "../lib/hooks";
import { useHeld, useInside } from "../lib/held";
import { merge, useRunStream } from "../lib/live";
import { useMay } from "../lib/me";
import { useRefresh } from "../parts/actions";
import { Empty, ErrorNote, Icon, icons, PageHead } from "../parts/basics";
import { RunBulk, type RunAction } from "../parts/runbulk";
import { runFilters, RunFilters } from "../parts/runfilters";
import { RunTable } from "../parts/runtable";

export default function Runs() {
  const t = useT();
  useTitle(t("nav.runs"));
  useListKeys();
  const may = useMay();
  const now = useNow();
  const refresh = useRefresh();
  const [f, setF] = useFilters(runFilters);
  const [live, setLive] = useState(true);
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [bulk, setBulk] = useState<{ action: RunAction; all: boolean }>();
  const { inside, events } = useInside();
  const hold = inside || chosen.size > 0;
  const late = useRef(false); // the list must be read again, after the reader has left it
  useEffect(() => setChosen(new Set()), [f]); // an action must not apply to runs that are no longer shown
  const client = useQueryClient();
  const list = useInfiniteQuery({
    queryKey: ["runs", f],
    queryFn: ({ pageParam, signal }) =>
      get("/api/v1/runs", {
        query: { ...f, job_id: f.job_id ? Number(f.job_id) : undefined, limit: 100, cursor: pageParam } as never,
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
    live ? search(f) : undefined,
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
  const filtered = runFilters.some((n) => f[n]);

  return (
    <>
      <PageHead title={t("nav.runs")}>
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
      </PageHead>
      <RunFilters f={f} set={setF} jobName={runs[0]?.job_name} />
      {may.operate && (chosen.size > 0 || (filtered && runs.length > 0)) && (
        <Group gap="xs" mb="xs" className="bulk-bar">
          <Text size="sm">{chosen.size ? t("bulk.chosen", { n: chosen.size }) : t("bulk.fitting")}</Text>
          <Button
            size="compact-sm"
            variant="light"
            color="red"
            onClick={() => setBulk({ action: "kill", all: chosen.size === 0 })}
          >
            {t("run.kill")}
          </Button>
          <Button
            size="compact-sm"
            variant="default"
            onClick={() => setBulk({ action: "retry", all: chosen.size === 0 })}
          >
            {t("run.retry")}
          </Button>
          {chosen.size > 0 && (
            <Button size="compact-sm" variant="subtle" color="gray" onClick={() => setChosen(new Set())}>
              {t("clear")}
            </Button>
          )}
        </Group>
      )}
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data &&
        runs.length === 0 &&
        (filtered ? (
          <Empty title={t("runs.nofit")}>
            <Anchor
              component="button"
              size="sm"
              onClick={() =>
                setF({ job_id: "", group: "", state: "", cause: "", reason: "", instance: "", from: "", to: "" })
              }
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
      {list.hasNextPage && (
        <Button
          mt="sm"
          size="xs"
          variant="default"
          loading={list.isFetchingNextPage}
          onClick={() => void list.fetchNextPage()}
        >
          {t("load.more")}
        </Button>
      )}
      {bulk && (
        <RunBulk
          action={bulk.action}
          filter={
            bulk.all
              ? {
                  ...f,
                  job_id: f.job_id ? Number(f.job_id) : undefined,
                  state: f.state ? f.state.split(",") : undefined,
                }
              : { ids: [...chosen] }
          }
          chosen={bulk.all ? undefined : chosen.size}
          onClose={() => {
            setBulk(undefined);
            setChosen(new Set());
            void refresh("runs");
          }}
        />
      )}
    </>
  );
}
