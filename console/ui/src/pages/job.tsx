import { Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { useSearch } from "wouter";
import { get } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { parseVersions } from "../lib/versions";
import { ErrorNote, Section } from "../parts/basics";
import { Definition } from "../parts/jobfacts";
import { JobGraph } from "../parts/jobgraph";
import { JobHead } from "../parts/jobhead";
import { JobHealth } from "../parts/jobhealth";
import { JobRuns } from "../parts/jobruns";
import { PausedBanner } from "../parts/jobpause";
import { Scripts } from "../parts/scripts";
import { Skeletons } from "../parts/skeletons";

const JobHistory = lazy(() => import("../parts/jobhistory"));
const VersionDiff = lazy(() => import("../parts/versiondiff"));

const tabs = ["runs", "definition", "script", "history"] as const;

/** JobPage shows a job in tabs. The address has the tab. With ?why=INSTANT it is the history, which explains why the job did not run then. */
export default function JobPage({ id }: { id: number }) {
  const t = useT();
  useListKeys();
  const may = useMay();
  const [f, setF] = useFilters(["tab", "versions"] as const);
  const asks = new URLSearchParams(useSearch()).has("why");
  const job = useQuery({
    queryKey: ["job", id],
    queryFn: () => get("/api/v1/jobs/{id}", { path: { id } }),
    refetchInterval: 5000,
  });
  const missed = useQuery({
    queryKey: ["missed", id],
    queryFn: () => get("/api/v1/jobs/{id}/missed", { path: { id }, query: { limit: 100 } }),
    refetchInterval: 15_000,
  });
  useTitle(job.data?.name ?? t("field.job"));
  if (job.error && !job.data) return <ErrorNote error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return <Skeletons rows={6} />;
  const j = job.data;
  const offered = tabs.filter((name) => name !== "script" || j.script);
  const tab = offered.find((name) => name === f.tab) ?? (asks ? "history" : "runs");
  const compared = may.administer ? parseVersions(f.versions) : undefined;
  const entries = missed.data?.items ?? [];
  return (
    <>
      <JobHead job={j} />
      <PausedBanner job={j} />
      <JobHealth job={j} />
      {missed.error && <ErrorNote error={missed.error} />}
      <Tabs
        value={tab}
        onChange={(name) => setF({ tab: name && name !== "runs" ? name : "" })}
        keepMounted={false}
        activateTabWithKeyboard
      >
        <Tabs.List mb="md" aria-label={j.name}>
          {offered.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {t(`job.tab.${name}`)}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="runs">
          <JobRuns job={j} missed={entries} />
        </Tabs.Panel>
        <Tabs.Panel value="definition">
          <Section title={t("job.definition")}>
            <Definition job={j} />
          </Section>
          <Section title={t("graph.title")}>
            <JobGraph job={j} />
          </Section>
        </Tabs.Panel>
        <Tabs.Panel value="script">{j.script && <Scripts job={j} />}</Tabs.Panel>
        <Tabs.Panel value="history">
          <Suspense fallback={<Skeletons rows={4} />}>
            <JobHistory job={j} missed={entries} />
          </Suspense>
        </Tabs.Panel>
      </Tabs>
      {compared && (
        <Suspense>
          <VersionDiff job={j.id} {...compared} onClose={() => setF({ versions: "" })} />
        </Suspense>
      )}
    </>
  );
}
