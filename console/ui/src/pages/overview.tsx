import { Anchor, Button, SegmentedControl, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { get, search } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useListKeys, useNow, useTitle } from "../lib/hooks";
import { useStream } from "../lib/live";
import { Attention } from "../parts/attention";
import { Bars } from "../parts/bars";
import { Empty, ErrorNote, PageHead, Section } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { GroupPick } from "../parts/filters";
import { Running, UpcomingFires } from "../parts/overviewlists";
import { OverviewTiles } from "../parts/overviewtiles";
import { Skeletons } from "../parts/skeletons";
import { useStale } from "../parts/tiles";

const spans = {
  "1h": { ms: 3_600_000, step: "1m", go: "1h" },
  "24h": { ms: 86_400_000, step: "30m", go: "24h" },
  "7d": { ms: 7 * 86_400_000, step: "3h", go: "168h" },
} as const;
type Span = keyof typeof spans;

export default function Overview() {
  const t = useT();
  useTitle(t("nav.overview"));
  useListKeys();
  const now = useNow();
  const [f, setF] = useFilters(["span", "group"] as const);
  const span: Span = f.span in spans ? (f.span as Span) : "24h";
  const group = f.group || undefined;
  const minute = Math.floor(now.getTime() / 60_000);
  const from = new Date(minute * 60_000 - spans[span].ms).toISOString();
  const [live, setLive] = useState(true);
  const client = useQueryClient();
  const every = (ms: number) => (live ? ms : false);
  const overview = useQuery({
    queryKey: ["overview", span, group],
    queryFn: () => get("/api/v1/overview", { query: { from, group } }),
    refetchInterval: every(60_000),
    placeholderData: (before) => before,
  });
  const status = useStream(live ? `/api/v1/overview/stream${search({ span: spans[span].go, group })}` : undefined, {
    overview: (data) => client.setQueryData(["overview", span, group], JSON.parse(data)),
  });
  const report = useQuery({
    queryKey: ["report", span, group],
    queryFn: () => get("/api/v1/reports/runs", { query: { from, group, step: spans[span].step } }),
    refetchInterval: every(30_000),
  });
  const running = useQuery({
    queryKey: ["runs", "running", group],
    queryFn: () => get("/api/v1/runs", { query: { state: ["running", "retrying"] as never, group, limit: 10 } }),
    refetchInterval: every(3000),
  });
  const upcoming = useQuery({
    queryKey: ["upcoming", group],
    queryFn: () => get("/api/v1/upcoming", { query: { within: "1h", group, limit: 200 } }),
    refetchInterval: every(5000),
  });
  const o = overview.data;
  const stale = useStale(overview, live && status !== "live");
  if (overview.error && !o) return <ErrorNote error={overview.error} retry={() => void overview.refetch()} />;

  return (
    <>
      <PageHead title={t("nav.overview")}>
        <Text size="xs" c="dimmed" role="status">
          {t(live ? (status === "live" ? "live.on" : "live.connecting") : "live.off")}
        </Text>
        <Button
          size="xs"
          variant="default"
          aria-pressed={!live}
          onClick={() => {
            setLive(!live);
            if (!live) for (const q of [overview, report, running, upcoming]) void q.refetch();
          }}
          leftSection={<Icon d={live ? icons.pause : icons.play} size={14} />}
        >
          {t(live ? "live.pause" : "live.go")}
        </Button>
        <GroupPick value={f.group} onChange={(g) => setF({ group: g })} />
        <SegmentedControl
          size="xs"
          value={span}
          onChange={(s) => setF({ span: s })}
          data={Object.keys(spans).map((s) => ({ value: s, label: t(`span.${s as Span}`) }))}
          aria-label={t("overview.span")}
        />
      </PageHead>
      {o ? (
        <OverviewTiles of={o} group={group} stale={stale} at={overview.dataUpdatedAt} />
      ) : (
        <Skeletons rows={1} height={62} />
      )}
      <Attention group={group} live={live} missed={o?.recent_missed ?? []} />
      {o && (
        <>
          {o.now.jobs === 0 && (
            <Empty title={t("jobs.none")}>
              <Text size="sm">{t("jobs.teach")}</Text>
              <Anchor component={Link} href="/jobs/new" size="sm">
                {t("jobs.first")}
              </Anchor>
            </Empty>
          )}
          {report.data && report.data.points.length > 0 && (
            <Section title={t("overview.over")}>
              <Bars points={report.data.points} />
            </Section>
          )}
          <div className="columns">
            <Running items={running.data?.items ?? []} of={f.group} now={now} />
            <UpcomingFires items={upcoming.data?.items ?? []} of={f.group} error={upcoming.error} now={now} />
          </div>
        </>
      )}
    </>
  );
}
