import { Badge, Button, Group, Menu, Select, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { get, type Job } from "../api/client";
import { useT } from "../i18n";
import { useListKeys, useNow, useTitle } from "../lib/hooks";
import { useMay } from "../lib/me";
import { dateTime, goDuration, offset, viewerZone } from "../lib/time";
import { DeleteJob, EnableSwitch, RunNow } from "../parts/actions";
import { Ago, Countdown, Empty, ErrorNote, errorText, Facts, Icon, icons, PageHead, Section, Snippet, State } from "../parts/basics";
import { RunTable } from "../parts/runtable";
import { scheduleText } from "../parts/schedule";

export default function JobPage({ id }: { id: number }) {
  const t = useT();
  useListKeys();
  const may = useMay();
  const now = useNow();
  const [, navigate] = useLocation();
  const [running, setRunning] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const job = useQuery({ queryKey: ["job", id], queryFn: () => get("/api/v1/jobs/{id}", { path: { id } }), refetchInterval: 5000 });
  const runs = useQuery({ queryKey: ["job-runs", id], queryFn: () => get("/api/v1/runs", { query: { job_id: id, limit: 50 } }), refetchInterval: 2000 });
  useTitle(job.data?.name ?? t("field.job"));
  if (job.error && !job.data) return <ErrorNote error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return null;
  const j = job.data;
  const past = runs.data?.items.filter((r) => r.state !== "pending") ?? [];
  return (
    <>
      <PageHead title={j.name} sub={<Group gap="xs">{j.group}{j.tags.map((tag) => <Link key={tag} className="tag" href={`/jobs?tag=${encodeURIComponent(tag)}`}>#{tag}</Link>)}<EnableSwitch job={j} label /></Group>}>
        {may.operate && <>
          <Button size="xs" leftSection={<Icon d={icons.play} size={14} />} onClick={() => setRunning(true)}>{t("run.now")}</Button>
          <Button size="xs" variant="default" component={Link} href={`/jobs/${id}/edit`} leftSection={<Icon d={icons.edit} size={14} />}>{t("edit")}</Button>
          <Menu position="bottom-end"><Menu.Target><Button size="xs" variant="default" aria-label={t("more", { name: j.name })}>⋯</Button></Menu.Target>
            <Menu.Dropdown><Menu.Item onClick={() => navigate(`/jobs/new?clone=${id}`)}>{t("clone")}</Menu.Item><Menu.Item color="red" onClick={() => setDeleting(true)}>{t("delete")}</Menu.Item></Menu.Dropdown></Menu>
        </>}
      </PageHead>
      {j.description && <Text size="sm" mb="xs">{j.description}</Text>}
      {j.note && <Text size="sm" c="var(--warn)" mb="xs">{j.note}</Text>}
      {past.length > 0 && <Strip runs={past} />}
      <div className="columns">
        <Section title={t("job.recent")} right={<Link className="link" href={`/runs?job_id=${id}`}>{t("all")}</Link>}>
          {runs.error && <ErrorNote error={runs.error} />}
          {runs.data && (past.length ? <RunTable runs={past.slice(0, 12)} job={false} now={now} /> : <Empty title={t("job.noruns")}><Text size="sm">{t("job.noruns.text")}</Text></Empty>)}
        </Section>
        <div>
          <Upcoming job={j} />
          <Section title={t("job.definition")}><Definition job={j} /></Section>
        </div>
      </div>
      <Why job={j} />
      <Missed job={j} />
      {j.script && <Scripts job={j} />}
      {running && <RunNow job={j} onClose={() => setRunning(false)} />}
      {deleting && <DeleteJob job={j} onClose={() => setDeleting(false)} onDone={() => navigate("/jobs")} />}
    </>
  );
}

/** Strip shows the last runs, oldest first, by shape and colour. */
function Strip({ runs }: { runs: { id: string; state: Parameters<typeof State>[0]["state"]; reason: string; fire_time: string | null }[] }) {
  const t = useT();
  return (
    <div className="strip" role="group" aria-label={t("job.strip")}>
      {[...runs].reverse().map((r) => <Link key={r.id} href={`/runs/${r.id}`} className="strip-cell" title={r.fire_time ? dateTime(r.fire_time) : undefined}><State state={r.state} reason={r.reason} compact /></Link>)}
    </div>
  );
}

function Upcoming({ job }: { job: Job }) {
  const t = useT();
  const next = useQuery({ queryKey: ["job", job.id, "next", job.version, job.next_fire_time], queryFn: () => get("/api/v1/jobs/{id}/next", { path: { id: job.id }, query: { count: 5 } }), enabled: job.schedule.kind !== "none" });
  const zone = job.schedule.time_zone || (job.schedule.kind === "cron" ? "UTC" : viewerZone());
  return (
    <Section title={t("job.upcoming")}>
      <Text size="sm" mb={4}>{job.schedule.kind === "none" ? t("kind.none.help") : (next.data?.description ?? scheduleText(t, job.schedule))}</Text>
      {next.error && <Text size="sm" c="var(--bad)">{errorText(t, next.error)}</Text>}
      {!job.enabled && job.schedule.kind !== "none" && <Text size="sm" c="dimmed">{t("job.disabled.text")}</Text>}
      {job.enabled && next.data && (next.data.fire_times.length === 0 ? <Text size="sm" c="dimmed">{t("schedule.never")}</Text> : (
        <ol className="times">{next.data.fire_times.map((at, i) => <li key={at} className="num">{dateTime(at, zone)} <span className="faint">{offset(at, zone)}</span> {zone !== viewerZone() && <span className="faint">· {t("schedule.yours.short", { at: dateTime(at) })}</span>} {i === 0 && <Countdown at={at} />}</li>)}</ol>
      ))}
    </Section>
  );
}

function Definition({ job: j }: { job: Job }) {
  const t = useT();
  return (
    <>
      <Facts of={[
        [t("field.schedule"), <span className="mono" key="s">{scheduleText(t, j.schedule)}</span>],
        [t("field.handler"), j.handler ? <span key="h" className="mono">{j.handler}</span> : null],
        [t("field.script"), j.script ? t("job.script", { language: j.script.language, n: j.script.version ?? 1 }) : null],
        [t("field.misfire"), t(`misfire.${j.misfire}`)],
        [t("field.block"), `${t(`block.${j.block}`)}${j.block_scope === "instance" ? ` · ${t("scope.instance")}` : ""}`],
        [t("field.route"), `${t(`route.${j.route}`)}${j.route_key ? `: ${j.route_key}` : ""}${j.shards ? ` · ${j.shards}` : ""}`],
        [t("field.timeout"), j.timeout === "0s" ? t("none") : goDuration(j.timeout)],
        [t("field.start_deadline"), goDuration(j.start_deadline)],
        [t("field.retries"), j.retries ? t("job.retries", { n: j.retries, initial: goDuration(j.retry_backoff.initial ?? ""), factor: j.retry_backoff.factor ?? 2, max: goDuration(j.retry_backoff.max ?? "") }) : "0"],
        [t("field.children"), j.children.length ? j.children.map((c) => <Link key={c.job_id} className="link" href={`/jobs/${c.job_id}`}>#{c.job_id} ({t(`on.${c.on ?? "success"}`)}) </Link>) : null],
        [t("field.alert"), j.alert.channels?.length ? `${j.alert.channels.join(", ")}: ${(j.alert.on ?? []).map((o) => t(`alert.${o}`)).join(", ")}` : null],
        [t("field.retention"), j.retention ? goDuration(j.retention) : null],
        [t("field.author"), j.author],
        [t("job.version"), <>{j.version} · <Ago at={j.updated_at} /></>],
      ]} />
      {j.param && <><Text size="xs" c="dimmed" mt="xs">{t("field.param")}</Text><Snippet code={j.param} /></>}
    </>
  );
}

/** Why answers why the job did or did not run at a time. */
function Why({ job }: { job: Job }) {
  const t = useT();
  const [at, setAt] = useState(() => dateTime(job.last_fire_time ?? new Date()).replace(" ", "T"));
  const m = useMutation({ mutationFn: (at: string) => get("/api/v1/jobs/{id}/why", { path: { id: job.id }, query: { at: new Date(at).toISOString() } }) });
  return (
    <Section title={t("why.title")}>
      <form onSubmit={(e) => { e.preventDefault(); if (at) m.mutate(at); }}>
        <Group align="end" gap="xs"><TextInput type="datetime-local" step={1} size="xs" label={t("why.at", { zone: viewerZone() })} value={at} onChange={(e) => setAt(e.currentTarget.value)} /><Button type="submit" size="xs" variant="default" loading={m.isPending}>{t("why.ask")}</Button></Group>
      </form>
      <div aria-live="polite">
        {m.error && <ErrorNote error={m.error} />}
        {m.data && (
          <div className="answer">
            <Text size="sm">{m.data.answer}</Text>
            {m.data.run_id && <Link className="link" href={`/runs/${m.data.run_id}`}>{t("why.run")}</Link>}
            {!m.data.is_fire_time && (
              <Group gap="sm" mt={4}>
                {[m.data.fire_time_before, m.data.fire_time_after].map((x, i) => x && <button key={x} type="button" className="link" onClick={() => { setAt(dateTime(x).replace(" ", "T")); m.mutate(x); }}>{t(i === 0 ? "why.before" : "why.after", { at: dateTime(x) })}</button>)}
              </Group>
            )}
          </div>
        )}
      </div>
    </Section>
  );
}

function Missed({ job }: { job: Job }) {
  const t = useT();
  const missed = useQuery({ queryKey: ["missed", job.id], queryFn: () => get("/api/v1/jobs/{id}/missed", { path: { id: job.id }, query: { limit: 20 } }), refetchInterval: 15_000 });
  return (
    <Section title={t("missed.title")}>
      {missed.error && <ErrorNote error={missed.error} />}
      {missed.data?.items.length === 0 && <Text size="sm" c="dimmed">{t("missed.none")}</Text>}
      {!!missed.data?.items.length && (
        <div className="table-box"><table className="list">
          <thead><tr><th>{t("missed.when")}</th><th>{t("missed.count")}</th><th className="mid">{t("missed.policy")}</th><th>{t("missed.why")}</th></tr></thead>
          <tbody>{missed.data.items.map((m) => (
            <tr key={m.at + m.first}><td className="num">{dateTime(m.first)}{m.last !== m.first && <> – {dateTime(m.last)}</>}</td><td className="num">{m.count}</td><td className="mid">{t(`misfire.${m.policy}`)}</td><td className="message">{m.why}</td></tr>
          ))}</tbody>
        </table></div>
      )}
    </Section>
  );
}

function Scripts({ job }: { job: Job }) {
  const t = useT();
  const list = useQuery({ queryKey: ["scripts", job.id, job.version], queryFn: () => get("/api/v1/jobs/{id}/scripts", { path: { id: job.id }, query: { limit: 500 } }) });
  const [chosen, setChosen] = useState<number>();
  const [mode, setMode] = useState<"code" | "diff">("code");
  const version = chosen ?? list.data?.items[0]?.version;
  const diff = version !== undefined && version > 1 ? version - 1 : undefined;
  const one = useQuery({ queryKey: ["script", job.id, version, diff], queryFn: () => get("/api/v1/jobs/{id}/scripts/{version}", { path: { id: job.id, version: version ?? 1 }, query: diff ? { diff } : {} }), enabled: version !== undefined });
  return (
    <Section title={t("scripts.title")} right={<Group gap="xs">
      <Select size="xs" aria-label={t("scripts.version")} allowDeselect={false} value={String(version ?? "")} onChange={(v) => setChosen(Number(v))}
        data={list.data?.items.map((s) => ({ value: String(s.version), label: `${s.version} · ${dateTime(s.created_at)} · ${s.author}` })) ?? []} w={260} />
      {diff && <Button size="compact-xs" variant="default" aria-pressed={mode === "diff"} onClick={() => setMode(mode === "diff" ? "code" : "diff")}>{t(mode === "diff" ? "scripts.code" : "scripts.diff", { n: diff })}</Button>}
    </Group>}>
      {list.error && <ErrorNote error={list.error} />}
      {one.data && <>
        {one.data.remark && <Text size="sm" c="dimmed">{one.data.remark}</Text>}
        <Badge size="xs" variant="light" color="gray">{one.data.language}</Badge>
        {mode === "diff" && one.data.diff !== undefined
          ? <pre className="code-block diff" tabIndex={0}>{one.data.diff.split("\n").map((l, i) => <div key={i} className={/^\+(?!\+\+)/.test(l) ? "added" : /^-(?!--)/.test(l) ? "removed" : undefined}>{l || " "}</div>)}</pre>
          : <Snippet code={one.data.code ?? ""} />}
      </>}
    </Section>
  );
}
