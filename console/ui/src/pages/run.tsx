import { Alert, Button, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { get, post, type RunDetail } from "../api/client";
import { useT } from "../i18n";
import { useExplain, useMessage } from "../i18n/explain";
import { useNow, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { shortDuration } from "../lib/time";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import {
  ErrorNote,
  Facts,
  Icon,
  icons,
  Instant,
  PageHead,
  reasonText,
  Section,
  Snippet,
  State,
  Copy,
} from "../parts/basics";
import { LogView } from "../parts/logview";
import { Timeline } from "../parts/timeline";

export const final = (state: string) => ["succeeded", "failed", "cancelled", "skipped"].includes(state);

export default function RunPage({ id }: { id: string }) {
  const t = useT();
  const explain = useExplain();
  const message = useMessage();
  const may = useMay();
  const now = useNow();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const complain = useComplain();
  const [killing, setKilling] = useState(false);
  const run = useQuery({
    queryKey: ["run", id],
    queryFn: () => get("/api/v1/runs/{id}", { path: { id } }),
    refetchInterval: (q) => (q.state.data && final(q.state.data.state) ? 15_000 : 1000),
  });
  useTitle(run.data ? `${run.data.job_name} · ${t(`state.${run.data.state}`)}` : t("run.title"));
  const retry = useMutation({
    mutationFn: () => post("/api/v1/runs/{id}/retry", { path: { id } }),
    onSuccess: (a) => a.run_ids[0] && navigate(`/runs/${a.run_ids[0]}`),
    onError: complain,
  });
  if (run.error && !run.data) return <ErrorNote error={run.error} retry={() => void run.refetch()} />;
  if (!run.data) return null;
  const r = run.data;
  const shard = r.shard as { index: number; total: number } | null;
  return (
    <>
      <PageHead
        title={
          <>
            <Link href={`/jobs/${r.job_id}`} className="plain-link">
              {r.job_name}
            </Link>{" "}
            <State state={r.state} reason={r.reason} />
          </>
        }
        sub={
          <>
            {r.group} · {t(`cause.${r.cause}`)} · <Instant at={r.fire_time ?? r.created_at} /> ·{" "}
            <span className="mono faint">{r.id}</span> <Copy text={r.id} label={t("run.copyid")} />
          </>
        }
      >
        {may.operate && !final(r.state) && (
          <Button
            size="xs"
            color="red"
            variant="light"
            leftSection={<Icon d={icons.stop} size={14} />}
            onClick={() => setKilling(true)}
            disabled={!!r.kill_requested_at}
          >
            {t("run.kill")}
          </Button>
        )}
        {may.operate && final(r.state) && (
          <Button
            size="xs"
            variant="default"
            leftSection={<Icon d={icons.retry} size={14} />}
            loading={retry.isPending}
            onClick={() => retry.mutate()}
          >
            {t("run.retry")}
          </Button>
        )}
      </PageHead>
      {run.error && <ErrorNote error={run.error} />}
      {r.kill_requested_at && !final(r.state) && (
        <Alert color="yellow" variant="light" mb="sm">
          {r.started_at
            ? t("run.killing.running", { d: shortDuration(Math.max(0, now.getTime() - Date.parse(r.started_at))) })
            : t("run.killing")}
        </Alert>
      )}
      {r.message && (
        <pre className={`message-block ${r.state === "failed" ? "bad" : ""}`} tabIndex={0}>
          {message(r)}
        </pre>
      )}
      {r.waiting && (
        <Text size="sm" mb="xs">
          <b>{t("run.waiting")}</b> {explain(r.waiting)}
        </Text>
      )}
      {r.held_by && (
        <Text size="sm" mb="xs">
          <b>{t("run.held")}</b>{" "}
          <Link className="link mono" href={`/runs/${r.held_by}`}>
            {r.held_by}
          </Link>
        </Text>
      )}
      {r.note && (
        <Text size="sm" mb="xs">
          {r.note}
        </Text>
      )}
      <div className="columns">
        <Section title={t("run.timeline")}>
          <Timeline run={r} now={now} />
        </Section>
        <div>
          <Section title={t("run.facts")}>
            <Facts
              of={[
                [t("run.instance"), r.instance],
                [t("field.route"), explain(r.route)],
                [t("run.late"), r.lateness_ms != null ? shortDuration(r.lateness_ms) : null],
                [t("run.duration"), r.duration_ms != null ? shortDuration(r.duration_ms) : null],
                [t("run.attempt"), t("run.attempts.of", { n: r.attempt, max: r.max_attempts })],
                [t("run.reason"), r.reason ? reasonText(t, r.reason) : null],
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
      {(r.param || r.output) && (
        <div className="columns">
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
        </div>
      )}
      <Section title={t("log.title")}>
        <LogView key={r.id} run={r.id} over={final(r.state)} onState={() => void refresh("run")} />
      </Section>
      {killing && (
        <Confirm
          title={t("run.kill.title")}
          text={t("run.kill.text")}
          action={t("run.kill")}
          onClose={() => setKilling(false)}
          onConfirm={async () => {
            await post("/api/v1/runs/{id}/kill", { path: { id } });
            await refresh("run");
          }}
        />
      )}
    </>
  );
}

/** Parent shows the run that caused this one, if the user may see it. */
function Parent({ id }: { id: string }) {
  const parent = useQuery({
    queryKey: ["run", id],
    queryFn: () => get("/api/v1/runs/{id}", { path: { id } }),
    staleTime: 10_000,
    retry: false,
  });
  return (
    <Link className="plain-link" href={`/runs/${id}`}>
      {parent.data ? (
        <>
          <State state={parent.data.state} reason={parent.data.reason} /> {parent.data.job_name}
        </>
      ) : (
        <span className="mono">{id}</span>
      )}
    </Link>
  );
}

function Family({ run }: { run: RunDetail }) {
  const t = useT();
  const shards = useQuery({
    queryKey: ["shards", run.id],
    queryFn: () => get("/api/v1/runs/{id}/shards", { path: { id: run.id } }),
    enabled: run.broadcast_id !== null,
    refetchInterval: (q) => (q.state.data?.items.every((s) => final(s.state)) ? false : 2000),
  });
  return (
    <>
      {run.children.length > 0 && (
        <Section title={t("run.children")}>
          <ul className="plain-list">
            {run.children.map((c) => (
              <li key={c.id}>
                <Link className="plain-link" href={`/runs/${c.id}`}>
                  <State state={c.state as RunDetail["state"]} /> {c.job_name}
                </Link>
              </li>
            ))}
          </ul>
        </Section>
      )}
      {shards.data && shards.data.items.length > 0 && (
        <Section title={t("run.shards", { n: shards.data.total })}>
          <ul className="plain-list">
            {shards.data.items.map((s) => (
              <li key={s.id}>
                <Link className="plain-link" aria-current={s.id === run.id ? "true" : undefined} href={`/runs/${s.id}`}>
                  <span className="num">{(s.shard as { index: number } | null)?.index}</span>{" "}
                  <State state={s.state} reason={s.reason} /> <span className="faint">{s.instance}</span>
                </Link>
              </li>
            ))}
          </ul>
        </Section>
      )}
    </>
  );
}
