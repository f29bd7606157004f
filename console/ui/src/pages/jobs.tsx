import { ActionIcon, Anchor, Badge, Button, Group, Menu, Text, Tooltip } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { get, type Job } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { DeleteJob, EnableSwitch, RunNow } from "../parts/actions";
import { Countdown, Empty, ErrorNote, Icon, icons, Instant, PageHead, Snippet } from "../parts/basics";
import { Chips, GroupPick, Pick, SearchField } from "../parts/filters";
import { scheduleText } from "../parts/schedule";
import { sdkSnippet } from "../parts/snippets";

const names = ["q", "group", "tag", "enabled", "kind"] as const;
const kinds = ["none", "cron", "fixed_rate", "fixed_delay", "once"] as const;

export default function Jobs() {
  const t = useT();
  useTitle(t("nav.jobs"));
  useListKeys();
  const may = useMay();
  const [, navigate] = useLocation();
  const [f, setF] = useFilters(names);
  const [running, setRunning] = useState<Job>();
  const [deleting, setDeleting] = useState<Job>();
  const list = useInfiniteQuery({
    queryKey: ["jobs", f],
    queryFn: ({ pageParam, signal }) => get("/api/v1/jobs", {
      query: { limit: 100, cursor: pageParam, q: f.q, group: f.group, tag: f.tag, kind: f.kind as "cron" | undefined, enabled: (f.enabled || undefined) as never }, signal,
    }),
    initialPageParam: "",
    getNextPageParam: (p) => p.next_cursor || undefined,
    placeholderData: (before) => before,
    refetchInterval: 5000,
  });
  const jobs = list.data?.pages.flatMap((p) => p.items) ?? [];
  const filtered = names.some((n) => f[n]);

  return (
    <>
      <PageHead title={t("nav.jobs")}>{may.operate && <Button size="xs" component={Link} href="/jobs/new" leftSection={<Icon d={icons.plus} size={14} />}>{t("jobs.new")}</Button>}</PageHead>
      <div className="filters">
        <SearchField value={f.q} onChange={(q) => setF({ q })} label={t("jobs.search")} />
        <GroupPick value={f.group} onChange={(group) => setF({ group })} />
        <Pick label={t("field.schedule")} value={f.kind} onChange={(kind) => setF({ kind })} data={kinds.map((k) => ({ value: k, label: t(`kind.${k}`) }))} />
        <Chips label={t("jobs.enabled")} values={["true", "false"] as const} value={f.enabled} onChange={(v) => setF({ enabled: v.split(",").at(-1) ?? "" })} name={(v) => t(v === "true" ? "job.enabled" : "job.disabled")} />
        {f.tag && <Chips label={t("field.tags")} values={[f.tag]} value={f.tag} onChange={() => setF({ tag: "" })} name={(v) => `#${v} ×`} />}
      </div>
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data && jobs.length === 0 && (filtered
        ? <Empty title={t("jobs.nofit")}><Anchor component="button" size="sm" onClick={() => setF({ q: "", group: "", tag: "", enabled: "", kind: "" })}>{t("clear.filters")}</Anchor></Empty>
        : <Empty title={t("jobs.none")}>
            <Text size="sm">{t("jobs.teach")}</Text>
            <Snippet code={sdkSnippet} />
            {may.operate && <Button size="xs" component={Link} href="/jobs/new" w="fit-content">{t("jobs.first")}</Button>}
          </Empty>)}
      {jobs.length > 0 && (
        <div className="table-box">
          <table className="list">
            <thead><tr><th>{t("field.name")}</th><th className="wide">{t("field.group")}</th><th className="wide">{t("field.schedule")}</th><th className="mid">{t("job.next")}</th><th className="mid">{t("job.last")}</th><th>{t("job.enabled")}</th><th><span className="sr-only">{t("actions")}</span></th></tr></thead>
            <tbody>
              {jobs.map((j) => (
                <tr key={j.id}>
                  <td className="grow">
                    <Link href={`/jobs/${j.id}`} data-row className="row-link">{j.name}</Link>
                    {j.tags.map((tag) => <button key={tag} type="button" className="tag" onClick={() => setF({ tag })}>#{tag}</button>)}
                    <div className="narrow-only faint">{j.group} · {scheduleText(t, j.schedule)}</div>
                  </td>
                  <td className="wide">{j.group}</td>
                  <td className="wide mono">{scheduleText(t, j.schedule)}{j.note && <Tooltip label={j.note}><Badge ml={6} size="xs" color="yellow" variant="light" tabIndex={0}>{t("note")}</Badge></Tooltip>}</td>
                  <td className="mid num">{j.enabled && j.next_fire_time ? <><Instant at={j.next_fire_time} now={new Date()} /> <Countdown at={j.next_fire_time} /></> : <span className="faint">–</span>}</td>
                  <td className="mid num"><Instant at={j.last_fire_time} now={new Date()} /></td>
                  <td><EnableSwitch job={j} /></td>
                  <td className="row-actions">
                    {may.operate && <Group gap={2} wrap="nowrap" justify="flex-end">
                      <Tooltip label={t("run.now")}><ActionIcon variant="subtle" size="sm" onClick={() => setRunning(j)} aria-label={t("run.now.title", { name: j.name })}><Icon d={icons.play} /></ActionIcon></Tooltip>
                      <Menu position="bottom-end" width={160}>
                        <Menu.Target><ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name: j.name })}>⋯</ActionIcon></Menu.Target>
                        <Menu.Dropdown>
                          <Menu.Item onClick={() => navigate(`/jobs/${j.id}/edit`)}>{t("edit")}</Menu.Item>
                          <Menu.Item onClick={() => navigate(`/jobs/new?clone=${j.id}`)}>{t("clone")}</Menu.Item>
                          <Menu.Item onClick={() => navigate(`/runs?job_id=${j.id}`)}>{t("nav.runs")}</Menu.Item>
                          <Menu.Divider />
                          <Menu.Item color="red" onClick={() => setDeleting(j)}>{t("delete")}</Menu.Item>
                        </Menu.Dropdown>
                      </Menu>
                    </Group>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {list.hasNextPage && <Button mt="sm" size="xs" variant="default" loading={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>{t("load.more")}</Button>}
      {running && <RunNow job={running} onClose={() => setRunning(undefined)} />}
      {deleting && <DeleteJob job={deleting} onClose={() => setDeleting(undefined)} />}
    </>
  );
}
