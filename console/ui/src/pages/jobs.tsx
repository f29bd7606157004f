import { Anchor, Button, Group, Menu, SegmentedControl, Text } from "@mantine/core";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { Link } from "wouter";
import { get, type Job } from "../api/client";
import { useT } from "../i18n";
import { useServers } from "../lib/executors";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { DeleteJob } from "../parts/actions";
import { GroupRollUp } from "../parts/grouprollup";
import { RunNow } from "../parts/rundialog";
import { Empty, ErrorNote, PageHead, Snippet } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { JobBulk, type JobAction } from "../parts/jobbulk";
import { jobFilters, JobFilters, jobQuery } from "../parts/jobfilters";
import { PauseJob } from "../parts/jobpause";
import { JobTable } from "../parts/jobtable";
import { Skeletons } from "../parts/skeletons";
import { sdkProgram } from "../parts/snippets";
import { isJobOrder } from "../parts/sorthead";
import { exportAddress } from "../parts/exportaddress";

const Import = lazy(() => import("../parts/transfer"));

export default function Jobs() {
  const t = useT();
  useTitle(t("nav.jobs"));
  useListKeys();
  const may = useMay();
  const servers = useServers();
  const [f, setF] = useFilters(jobQuery);
  const [running, setRunning] = useState<Job>();
  const [pausing, setPausing] = useState<Job>();
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
          health: (f.health || undefined) as never,
          sort: isJobOrder(f.sort) ? f.sort : undefined,
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
  const known = useQuery({
    queryKey: ["tags", f.group],
    queryFn: () => get("/api/v1/tags", { query: { group: f.group || undefined, limit: 10 } }),
    staleTime: 30_000,
    placeholderData: (before) => before,
  });
  const byGroup = f.view === "groups";
  const jobs = list.data?.pages.flatMap((p) => p.items) ?? [];
  // If a search matches few jobs, pages are short or empty. Then the next page is read until there are some jobs.
  const { hasNextPage, isFetching, isError, fetchNextPage } = list;
  const seeking = hasNextPage && !isError && jobs.length < 100;
  useEffect(() => {
    if (seeking && !isFetching) void fetchNextPage();
  }, [seeking, isFetching, fetchNextPage]);
  const filtered = jobFilters.some((n) => f[n]);
  const picked = jobs.filter((j) => chosen.has(j.id));
  const choose = (id: number, on: boolean) =>
    setChosen((before) => {
      const next = new Set(before);
      if (on) next.add(id);
      else next.delete(id);
      return next;
    });
  const clear = () => setF({ q: "", group: "", tag: "", enabled: "", kind: "", calendar: "", health: "" });
  const tags = [...new Set([...(f.tag ? [f.tag] : []), ...(known.data?.items.map((i) => i.tag) ?? [])])];

  return (
    <>
      <PageHead title={t("nav.jobs")}>
        <SegmentedControl
          size="xs"
          value={byGroup ? "groups" : "jobs"}
          onChange={(view) => setF({ view: view === "groups" ? view : "" })}
          data={[
            { value: "jobs", label: t("jobs.each") },
            { value: "groups", label: t("jobs.bygroup") },
          ]}
          aria-label={t("jobs.view")}
        />
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
      {byGroup ? (
        <GroupRollUp />
      ) : (
        <>
          <JobFilters f={f} set={setF} tags={tags} clear={filtered ? clear : undefined} />
          {picked.length > 0 && (
            <Group
              className="bulk-bar"
              gap="xs"
              mb="xs"
              role="group"
              aria-label={t("bulk.chosen", { n: picked.length })}
            >
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
          {list.isPending && <Skeletons rows={8} />}
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
                <Snippet code={sdkProgram(f.group || "default", servers)} />
                {may.operate && (
                  <Button size="xs" component={Link} href="/jobs/new" w="fit-content">
                    {t("jobs.first")}
                  </Button>
                )}
              </Empty>
            ))}
          {jobs.length > 0 && (
            <JobTable
              jobs={jobs}
              chosen={chosen}
              choose={choose}
              chooseAll={(on) => setChosen(new Set(on ? jobs.map((j) => j.id) : []))}
              sort={f.sort}
              onSort={(sort) => setF({ sort })}
              onTag={(tag) => setF({ tag })}
              onRun={setRunning}
              onPause={setPausing}
              onDelete={setDeleting}
            />
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
        </>
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
      {pausing && <PauseJob job={pausing} onClose={() => setPausing(undefined)} />}
      {deleting && <DeleteJob job={deleting} onClose={() => setDeleting(undefined)} />}
    </>
  );
}
