import { useQuery } from "@tanstack/react-query";
import { get } from "../api/client";
import { useT } from "../i18n";
import { useExplain } from "../i18n/explain";
import { useNow, useTitle } from "../lib/hooks";
import { final, hasReason } from "../lib/states";
import { shortDuration } from "../lib/time";
import { useRefresh } from "../parts/actions";
import { Attempts } from "../parts/attempts";
import { ErrorNote, Facts, reasonText, Section, Snippet } from "../parts/basics";
import { LogView } from "../parts/logview";
import { Family, Parent } from "../parts/runfamily";
import { RunHead } from "../parts/runhead";
import { RunVerdict } from "../parts/runverdict";
import { Skeletons } from "../parts/skeletons";
import { Timeline } from "../parts/timeline";

/** RunPage shows a run: first its state and error, then the log, then when what happened. */
export default function RunPage({ id }: { id: string }) {
  const t = useT();
  const explain = useExplain();
  const now = useNow();
  const refresh = useRefresh();
  const run = useQuery({
    queryKey: ["run", id],
    queryFn: () => get("/api/v1/runs/{id}", { path: { id } }),
    refetchInterval: (q) => (q.state.data && final(q.state.data.state) ? 15_000 : 1000),
  });
  useTitle(run.data ? `${run.data.job_name} · ${t(`state.${run.data.state}`)}` : t("run.title"));
  if (run.error && !run.data) return <ErrorNote error={run.error} retry={() => void run.refetch()} />;
  if (!run.data) return <Skeletons rows={6} />;
  const r = run.data;
  const last = r.attempts.at(-1);
  const shard = r.shard as { index: number; total: number } | null;
  return (
    <>
      <RunHead run={r} />
      {run.error && <ErrorNote error={run.error} />}
      <RunVerdict run={r} now={now} />
      <Section title={t("log.title")}>
        <LogView key={r.id} run={r.id} over={final(r.state)} onState={() => void refresh("run")} />
      </Section>
      <Attempts run={r} now={now} />
      <div className="columns">
        <Section title={t("run.timeline")}>
          <Timeline run={r} now={now} />
        </Section>
        <div>
          {r.param && (
            <Section title={t("field.param")}>
              <Snippet code={r.param} />
            </Section>
          )}
          {r.output && (
            <Section title={t("run.output")}>
              <Snippet code={r.output} />
            </Section>
          )}
          <Section title={t("run.facts")}>
            <Facts
              of={[
                [t("run.instance"), r.instance],
                [t("instance.host"), last?.host],
                [t("run.executor"), last?.executor_version],
                [t("field.route"), explain(r.route)],
                [
                  t("run.waited.fact"),
                  r.waited ? `${shortDuration(r.waited.duration_ms)} · ${explain(r.waited)}` : null,
                ],
                [t("run.late"), r.lateness_ms != null ? shortDuration(r.lateness_ms) : null],
                [t("run.duration"), r.duration_ms != null ? shortDuration(r.duration_ms) : null],
                [t("run.attempt"), t("run.attempts.of", { n: r.attempt, max: r.max_attempts })],
                [t("run.reason"), r.reason && hasReason(r.state) ? reasonText(t, r.reason) : null],
                [t("run.shardname"), shard ? t("run.shard", { i: shard.index, n: shard.total }) : null],
                [t("run.event"), r.event_id],
                [t("job.version"), r.job_version],
                [t("run.parent"), r.parent_run_id ? <Parent key="p" id={r.parent_run_id} /> : null],
                [
                  t("run.trace"),
                  r.trace_url ? (
                    <a key="t" href={r.trace_url} target="_blank" rel="noreferrer">
                      {r.trace_id}
                    </a>
                  ) : null,
                ],
              ]}
            />
          </Section>
          <Family run={r} />
        </div>
      </div>
    </>
  );
}
