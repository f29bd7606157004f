import { Button, Progress, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import { call, get } from "../api/client";
import { useLanguage } from "../i18n";
import { ended, processed, runCount } from "../lib/bulk";
import { bulkNote } from "../lib/bulknote";
import { useNow, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { shortDuration } from "../lib/time";
import { useComplain, useRefresh } from "../parts/actions";
import { ErrorNote, Facts, Instant, PageHead, Section } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { BulkJobs, FilterWords } from "../parts/bulkparts";
import { BulkState } from "../parts/bulkstate";
import { RunBulk } from "../parts/runbulk";

/** BulkActionPage shows the progress of a bulk action, which continues on the server if the page is left. */
export default function BulkActionPage({ id }: { id: number }) {
  const { t, language } = useLanguage();
  const may = useMay();
  const now = useNow();
  const refresh = useRefresh();
  const complain = useComplain();
  const [undoing, setUndoing] = useState(false);
  const action = useQuery({
    queryKey: ["bulk", id],
    queryFn: () => get("/api/v1/bulk/{id}", { path: { id } }),
    refetchInterval: (q) => (q.state.data && ended(q.state.data) ? 15_000 : 1000),
  });
  const stop = useMutation({
    mutationFn: () => call("delete", "/api/v1/bulk/{id}", { path: { id } }),
    onSuccess: () => refresh("bulk"),
    onError: complain,
  });
  const a = action.data;
  useTitle(a ? `${t(`bulk.title.${a.action}`)} · ${t(`bulk.state.${a.state}`)}` : t("nav.bulk"));
  if (action.error && !a) return <ErrorNote error={action.error} retry={() => void action.refetch()} />;
  if (!a) return null;
  const over = ended(a);
  const done = processed(a);
  const until = a.finished_at ? Date.parse(a.finished_at) : now.getTime();
  return (
    <>
      <PageHead
        title={
          <>
            {t(`bulk.title.${a.action}`)} <BulkState state={a.state} />
          </>
        }
        sub={
          <>
            {a.created_by} · <Instant at={a.created_at} /> ·{" "}
            <Link className="link" href="/bulk">
              {t("bulk.all")}
            </Link>
          </>
        }
      >
        {may.operate && !over && (
          <Button
            size="xs"
            variant="default"
            leftSection={<Icon d={icons.stop} size={14} />}
            loading={stop.isPending}
            onClick={() => stop.mutate()}
          >
            {t("bulk.stop")}
          </Button>
        )}
        {may.operate && over && a.undo && (
          <Button size="xs" variant="light" color="red" onClick={() => setUndoing(true)}>
            {t("bulk.undo")}
          </Button>
        )}
      </PageHead>
      {action.error && <ErrorNote error={action.error} />}
      <div className="bulk-progress">
        <div className="tile-value" role="status">
          {t("bulk.progress", { done, n: runCount(a) })}
        </div>
        <Progress
          value={a.matched ? Math.min(100, (100 * done) / a.matched) : over ? 100 : 0}
          color={a.counts.failed ? "red" : undefined}
          aria-label={t("bulk.progress", { done, n: runCount(a) })}
        />
        <Text size="sm">
          {t(`bulk.${a.action}.done`, { n: a.counts.done })}
          {a.action === "retry" && a.counts.done > 0 && (
            <>
              {" · "}
              <Link className="link" href={`/runs?bulk_id=${a.id}`}>
                {t("bulk.show")}
              </Link>
            </>
          )}
          {a.counts.skipped > 0 && ` · ${t("bulk.skipped", { n: a.counts.skipped })}`}
          {a.counts.failed > 0 && <span className="bad"> · {t("bulk.failed", { n: a.counts.failed })}</span>}
        </Text>
        {a.note && (
          <Text size="sm" c={a.state === "failed" ? "var(--bad)" : "var(--warn)"}>
            {bulkNote(t, language, a)}
          </Text>
        )}
        <Text size="sm" c="dimmed">
          {t(!over ? "bulk.leave" : a.action === "kill" ? "bulk.final" : a.undo ? "bulk.undo.text" : "bulk.over")}
        </Text>
      </div>
      {a.errors.length > 0 && (
        <Section title={t("bulk.errors")}>
          <ul className="plain-list">
            {a.errors.map((e) => (
              <li key={e.message}>
                <Link className="plain-link" href={`/runs/${e.run_id}`}>
                  {e.message}
                </Link>{" "}
                {e.runs > 1 && <span className="faint num">×{e.runs}</span>}
              </li>
            ))}
          </ul>
        </Section>
      )}
      <Section title={t("bulk.jobs")}>
        <BulkJobs jobs={a.jobs} most={100} />
      </Section>
      <Section title={t("run.facts")}>
        <Facts
          of={[
            [t("bulk.which"), <FilterWords key="f" filter={a.filter} jobs={a.jobs} />],
            [t("run.duration"), a.started_at ? shortDuration(Math.max(0, until - Date.parse(a.started_at))) : null],
          ]}
        />
      </Section>
      {undoing && a.undo && <RunBulk action="kill" filter={a.undo.filter} onClose={() => setUndoing(false)} />}
    </>
  );
}
