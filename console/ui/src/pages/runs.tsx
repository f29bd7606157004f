import { Anchor, Button, Group, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useInfiniteQuery, useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { get, post } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useNow, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { Confirm, useRefresh } from "../parts/actions";
import { allReasons, causes, Empty, ErrorNote, Icon, icons, PageHead, reasonText, states } from "../parts/basics";
import { Chips, GroupPick, Pick } from "../parts/filters";
import { RunTable } from "../parts/runtable";

const names = ["job_id", "group", "state", "cause", "reason", "instance", "from", "to"] as const;

export default function Runs() {
  const t = useT();
  useTitle(t("nav.runs"));
  useListKeys();
  const may = useMay();
  const now = useNow();
  const refresh = useRefresh();
  const [f, setF] = useFilters(names);
  const [live, setLive] = useState(true);
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [bulk, setBulk] = useState<"kill" | "retry">();
  const list = useInfiniteQuery({
    queryKey: ["runs", f],
    queryFn: ({ pageParam, signal }) => get("/api/v1/runs", { query: { ...f, job_id: f.job_id ? Number(f.job_id) : undefined, limit: 100, cursor: pageParam } as never, signal }),
    initialPageParam: "",
    getNextPageParam: (p) => p.next_cursor || undefined,
    placeholderData: (before) => before,
    // Whoever has gone on to older pages reads; a list that jumps under them would be in their way.
    refetchInterval: (q) => (live && (q.state.data?.pages.length ?? 0) <= 1 ? 2000 : false),
  });
  const runs = list.data?.pages.flatMap((p) => p.items) ?? [];
  const filtered = names.some((n) => f[n]);
  const run = useMutation({
    mutationFn: (action: "kill" | "retry") => post("/api/v1/runs/bulk", { body: { action, filter: { ids: [...chosen] } } }),
    onSuccess: (a) => {
      notifications.show({ color: a.failed ? "yellow" : "blue", message: [t("bulk.done", { done: a.done, skipped: a.skipped, failed: a.failed }), ...a.failures.slice(0, 3).map((x) => x.detail)].join(" · ") });
      setChosen(new Set());
      return refresh("runs");
    },
  });

  return (
    <>
      <PageHead title={t("nav.runs")}>
        <Button size="xs" variant="default" aria-pressed={!live} onClick={() => { setLive(!live); if (!live) void list.refetch(); }} leftSection={<Icon d={live ? icons.pause : icons.play} size={14} />}>{t(live ? "live.pause" : "live.go")}</Button>
      </PageHead>
      <div className="filters">
        <Chips label={t("run.state")} values={states} value={f.state} onChange={(state) => setF({ state })} name={(s) => t(`state.${s}`)} />
        <GroupPick value={f.group} onChange={(group) => setF({ group })} />
        <Pick label={t("run.cause")} value={f.cause} onChange={(cause) => setF({ cause })} data={causes.map((c) => ({ value: c, label: t(`cause.${c}`) }))} width={130} />
        <Pick label={t("run.reason")} value={f.reason} onChange={(reason) => setF({ reason })} data={allReasons.map((r) => ({ value: r, label: reasonText(t, r) }))} width={170} />
        {f.job_id && <Chips label={t("field.job")} values={[f.job_id]} value={f.job_id} onChange={() => setF({ job_id: "" })} name={(v) => `${runs[0]?.job_name ?? `#${v}`} ×`} />}
        {f.instance && <Chips label={t("run.instance")} values={[f.instance]} value={f.instance} onChange={() => setF({ instance: "" })} name={(v) => `${v} ×`} />}
        {(f.from || f.to) && <Chips label={t("run.fire")} values={["x"]} value="x" onChange={() => setF({ from: "", to: "" })} name={() => `${f.from} – ${f.to} ×`} />}
      </div>
      {chosen.size > 0 && may.operate && (
        <Group gap="xs" mb="xs" className="bulk-bar"><Text size="sm">{t("bulk.chosen", { n: chosen.size })}</Text>
          <Button size="compact-sm" variant="light" color="red" onClick={() => setBulk("kill")}>{t("run.kill")}</Button>
          <Button size="compact-sm" variant="default" onClick={() => setBulk("retry")}>{t("run.retry")}</Button>
          <Button size="compact-sm" variant="subtle" color="gray" onClick={() => setChosen(new Set())}>{t("clear")}</Button></Group>
      )}
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data && runs.length === 0 && (filtered
        ? <Empty title={t("runs.nofit")}><Anchor component="button" size="sm" onClick={() => setF({ job_id: "", group: "", state: "", cause: "", reason: "", instance: "", from: "", to: "" })}>{t("clear.filters")}</Anchor></Empty>
        : <Empty title={t("runs.none")}><Text size="sm">{t("runs.teach")}</Text></Empty>)}
      {runs.length > 0 && <RunTable runs={runs} now={now} chosen={chosen} onChoose={may.operate ? (id, on) => setChosen((c) => { const n = new Set(c); if (on) n.add(id); else n.delete(id); return n; }) : undefined} />}
      {list.hasNextPage && <Button mt="sm" size="xs" variant="default" loading={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>{t("load.more")}</Button>}
      {bulk && <Confirm title={t(bulk === "kill" ? "bulk.kill" : "bulk.retry", { n: chosen.size })} text={t(bulk === "kill" ? "run.kill.text" : "bulk.retry.text")} action={t(bulk === "kill" ? "run.kill" : "run.retry")} onClose={() => setBulk(undefined)} onConfirm={() => run.mutateAsync(bulk)} />}
    </>
  );
}
