import { ActionIcon, Anchor, Badge, Button, Group, Menu, Text, Tooltip } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { Link, useLocation } from "wouter";
import { get, type Job } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { DeleteJob, EnableSwitch, RunNow } from "../parts/actions";
import { Countdown, Empty, ErrorNote, Icon, icons, Instant, PageHead, Snippet } from "../parts/basics";
import { Chips, GroupPick, Pick, SearchField } from "../parts/filters";
import { LastStrip } from "../parts/laststrip";
import { scheduleText } from "../parts/schedule";
import { JobBulk, type JobAction } from "../parts/jobbulk";
import { sdkSnippet } from "../parts/snippets";
import { exportAddress } from "../parts/exportaddress";

const Import = lazy(() => import("../parts/transfer"));

const names = ["q", "group", "tag", "enabled", "kind", "calendar"] as const;
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
  const [importing, setImporting] = useState(false);
  const [chosen, setChosen] = useState<Set<number>>(new Set());
  const [bulk, setBulk] = useState<JobAction>();
  useEffect(() => setChosen(new Set()), [f]); // an action must not apply to jobs that are no longer shown
  const list = useInfiniteQuery({
    queryKey: ["jobs", f],
    queryFn: ({ pageParam, signal }) =>
      get("/api/v1/jobs", {
        query: {
          limit: 100,
          last_runs: 10,
          cursor: pageParam,
          q: f.q,
          group: f.group,
          tag: f.tag,
          calendar: f.calendar,
          kind: f.kind as "cron" | undefined,
          enabled: (f.enabled || undefined) as never,
        },
        signal,
      }),
    initialPageParam: "",
    getNextPageParam: (p) => p.next_cursor || undefined,
    placeholderData: (before) => before,
    refetchInterval: (q) => ((q.state.data?.pages.length ?? 0) <= 3 ? 5000 : 60_000),
  });
  const jobs = list.data?.pages.flatMap((p) => p.items) ?? [];
  // If a search matches few jobs, pages are short or empty. Then the next page is read until there are some jobs.
  const { hasNextPage, isFetching, isError, fetchNextPage } = list;
  const seeking = hasNextPage && !isError && jobs.length < 100;
  useEffect(() => {
    if (seeking && !isFetching) void fetchNextPage();
  }, [seeking, isFetching, fetchNextPage]);
  const filtered = names.some((n) => f[n]);
  const picked = jobs.filter((j) => chosen.has(j.id));
  const choose = (id: number, on: boolean) =>
    setChosen((before) => {
      const next = new Set(before);
      if (on) next.add(id);
      else next.delete(id);
      return next;
    });
  const clear = () => setF({ q: "", group: "", tag: "", enabled: "", kind: "", calendar: "" });
  const tags = [...new Set([...(f.tag ? [f.tag] : []), ...jobs.flatMap((j) => j.tags)])].slice(0, 8);

  return (
    <>
      <PageHead title={t("nav.jobs")}>
        <Menu position="bottom-end">
          <Menu.Target>
            <Button size="xs" variant="default">
              {t("jobs.file")}
            </Button>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item
              component="a"
              href={exportAddress(f.group)}
              download
              leftSection={<Icon d={icons.down} size={14} />}
            >
              {f.group ? t("export.group", { name: f.group }) : t("export.all")}
            </Menu.Item>
            {may.operate && <Menu.Item onClick={() => setImporting(true)}>{t("import.title")}…</Menu.Item>}
          </Menu.Dropdown>
        </Menu>
        {may.operate && (
          <Button size="xs" component={Link} href="/jobs/new" leftSection={<Icon d={icons.plus} size={14} />}>
            {t("jobs.new")}
          </Button>
        )}
      </PageHead>
      <div className="filters">
        <SearchField value={f.q} onChange={(q) => setF({ q })} label={t("jobs.search")} />
        <GroupPick value={f.group} onChange={(group) => setF({ group })} />
        <Pick
          label={t("field.schedule")}
          value={f.kind}
          onChange={(kind) => setF({ kind })}
          data={kinds.map((k) => ({ value: k, label: t(`kind.${k}`) }))}
        />
        <Chips
          label={t("jobs.enabled")}
          values={["true", "false"] as const}
          value={f.enabled}
          onChange={(v) => setF({ enabled: v.split(",").at(-1) ?? "" })}
          name={(v) => t(v === "true" ? "job.enabled" : "job.disabled")}
        />
        {tags.length > 0 && (
          <Chips
            label={t("field.tags")}
            values={tags}
            value={f.tag}
            onChange={(v) => setF({ tag: v.split(",").at(-1) ?? "" })}
            name={(v) => `#${v}`}
          />
        )}
        {f.calendar && (
          <Chips
            label={t("field.calendar")}
            values={[f.calendar]}
            value={f.calendar}
            onChange={() => setF({ calendar: "" })}
            name={(v) => `${t("jobs.calendar", { name: v })} ×`}
          />
        )}
        {filtered && (
          <Anchor component="button" type="button" size="xs" onClick={clear}>
            {t("clear.filters")}
          </Anchor>
        )}
      </div>
      {picked.length > 0 && (
        <Group className="bulk-bar" gap="xs" mb="xs" role="group" aria-label={t("bulk.chosen", { n: picked.length })}>
          <Text size="sm" fw={600} role="status">
            {t("bulk.chosen", { n: picked.length })}
          </Text>
          {(["enable", "disable", "run", "delete"] as const).map((a) => (
            <Button
              key={a}
              size="compact-xs"
              variant="default"
              c={a === "delete" ? "var(--bad)" : undefined}
              onClick={() => setBulk(a)}
            >
              {t(`bulk.${a}`)}
            </Button>
          ))}
          <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setChosen(new Set())}>
            {t("clear")}
          </Button>
        </Group>
      )}
      {list.error && <ErrorNote error={list.error} retry={() => void list.refetch()} />}
      {list.data &&
        !seeking &&
        jobs.length === 0 &&
        (filtered ? (
          <Empty title={t("jobs.nofit")}>
            <Anchor component="button" size="sm" onClick={clear}>
              {t("clear.filters")}
            </Anchor>
          </Empty>
        ) : (
          <Empty title={t("jobs.none")}>
            <Text size="sm">{t("jobs.teach")}</Text>
            <Snippet code={sdkSnippet} />
            {may.operate && (
              <Button size="xs" component={Link} href="/jobs/new" w="fit-content">
                {t("jobs.first")}
              </Button>
            )}
          </Empty>
        ))}
      {jobs.length > 0 && (
        <div className="table-box">
          <table className="list">
            <thead>
              <tr>
                {may.operate && (
                  <th className="tick">
                    <input
                      type="checkbox"
                      aria-label={t("choose.all")}
                      checked={picked.length === jobs.length}
                      ref={(el) => {
                        if (el) el.indeterminate = picked.length > 0 && picked.length < jobs.length;
                      }}
                      onChange={(e) => setChosen(new Set(e.currentTarget.checked ? jobs.map((j) => j.id) : []))}
                    />
                  </th>
                )}
                <th>{t("field.name")}</th>
                <th className="wide">{t("field.group")}</th>
                <th className="wide">{t("field.schedule")}</th>
                <th className="mid">{t("job.next")}</th>
                <th className="mid">{t("strip.head")}</th>
                <th>{t("job.enabled")}</th>
                <th>
                  <span className="sr-only">{t("actions")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((j) => (
                <tr key={j.id} aria-selected={may.operate ? chosen.has(j.id) : undefined}>
                  {may.operate && (
                    <td className="tick">
                      <input
                        type="checkbox"
                        checked={chosen.has(j.id)}
                        onChange={(e) => choose(j.id, e.currentTarget.checked)}
                        aria-label={t("choose.job", { name: j.name })}
                      />
                    </td>
                  )}
                  <td className="grow">
                    <div className="clamp job-name">
                      <Link href={`/jobs/${j.id}`} data-row className="row-link" title={j.name}>
                        {j.name}
                      </Link>
                      {j.tags.map((tag) => (
                        <button key={tag} type="button" className="tag" onClick={() => setF({ tag })}>
                          #{tag}
                        </button>
                      ))}
                    </div>
                    <div className="narrow-only one-line">
                      {j.group} · {scheduleText(t, j.schedule)}
                    </div>
                    {!!j.last_runs?.length && (
                      <div className="phone-only">
                        <LastStrip runs={j.last_runs.slice(0, 8)} name={j.name} />
                      </div>
                    )}
                  </td>
                  <td className="wide">
                    <div className="clamp" title={j.group}>
                      {j.group}
                    </div>
                  </td>
                  <td className="wide mono">
                    {scheduleText(t, j.schedule)}
                    {j.note && (
                      <Tooltip label={j.note}>
                        <Badge ml={6} size="xs" color="yellow" variant="light" tabIndex={0}>
                          {t("note")}
                        </Badge>
                      </Tooltip>
                    )}
                  </td>
                  <td className="mid num">
                    {j.enabled && j.next_fire_time ? (
                      <>
                        <Instant at={j.next_fire_time} now={new Date()} /> <Countdown at={j.next_fire_time} />
                      </>
                    ) : (
                      <span className="faint">–</span>
                    )}
                  </td>
                  <td className="mid">
                    <LastStrip runs={j.last_runs ?? []} name={j.name} />
                  </td>
                  <td>
                    <EnableSwitch job={j} />
                  </td>
                  <td className="row-actions">
                    {may.operate && (
                      <Group gap={2} wrap="nowrap" justify="flex-end">
                        <Tooltip label={t("run.now")}>
                          <ActionIcon
                            variant="subtle"
                            size="sm"
                            onClick={() => setRunning(j)}
                            aria-label={t("run.now.title", { name: j.name })}
                          >
                            <Icon d={icons.play} />
                          </ActionIcon>
                        </Tooltip>
                        <Menu position="bottom-end" width={160}>
                          <Menu.Target>
                            <ActionIcon
                              variant="subtle"
                              color="gray"
                              size="sm"
                              aria-label={t("more", { name: j.name })}
                            >
                              ⋯
                            </ActionIcon>
                          </Menu.Target>
                          <Menu.Dropdown>
                            <Menu.Item onClick={() => navigate(`/jobs/${j.id}/edit`)}>{t("edit")}</Menu.Item>
                            <Menu.Item onClick={() => navigate(`/jobs/new?clone=${j.id}`)}>{t("clone")}</Menu.Item>
                            <Menu.Item onClick={() => navigate(`/runs?job_id=${j.id}`)}>{t("nav.runs")}</Menu.Item>
                            <Menu.Divider />
                            <Menu.Item color="red" onClick={() => setDeleting(j)}>
                              {t("delete")}
                            </Menu.Item>
                          </Menu.Dropdown>
                        </Menu>
                      </Group>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
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
        <JobBulk jobs={picked} action={bulk} onClose={() => setBulk(undefined)} onDone={() => setChosen(new Set())} />
      )}
      {importing && (
        <Suspense>
          <Import onClose={() => setImporting(false)} />
        </Suspense>
      )}
      {running && <RunNow job={running} onClose={() => setRunning(undefined)} />}
      {deleting && <DeleteJob job={deleting} onClose={() => setDeleting(undefined)} />}
    </>
  );
}
