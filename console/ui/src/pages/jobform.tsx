import { Alert, Autocomplete, Button, Collapse, Group, Input, Loader, NumberInput, Radio, SegmentedControl, Select, SimpleGrid, Stack, Switch, TagsInput, Text, Textarea, TextInput, UnstyledButton } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState, type ReactNode } from "react";
import { useLocation, useSearch } from "wouter";
import { ApiError, call, get, post, type JobInput } from "../api/client";
import { useT, type Key } from "../i18n";
import { draftOf, emptyDraft, tidy } from "../lib/draft";
import { useTitle } from "../lib/hooks";
import { viewerZone } from "../lib/time";
import { useComplain, useRefresh } from "../parts/actions";
import { ErrorNote, errorText, PageHead, Section } from "../parts/basics";
import { useGroups } from "../parts/filters";
import { Alerts, Children } from "../parts/jobfollowups";
import { ScheduleBuilder } from "../parts/schedulebuilder";

const CodeEditor = lazy(() => import("../parts/codeeditor"));
const YamlTab = lazy(() => import("../parts/yamltab"));

const routes = ["any", "first", "last", "round_robin", "random", "consistent_hash", "least_frequently_used", "least_recently_used", "failover", "busyover", "broadcast"] as const;
const languages = ["bash", "sh", "python", "node", "php", "powershell", "go"] as const;
const shownFields = ["group", "name", "description", "tags", "schedule.expr", "schedule.every", "schedule.delay", "schedule.at", "schedule.time_zone", "schedule.start_at", "schedule.end_at", "schedule.jitter", "schedule.calendar",
  "handler", "script.code", "script.language", "script.remark", "author", "misfire", "block", "block_scope", "children", "alert.channels", "alert.on", "param", "route", "route_key", "shards", "timeout", "start_deadline", "retries", "retry_backoff.initial", "retry_backoff.factor", "retry_backoff.max", "retention"];

export default function JobForm({ id }: { id?: number }) {
  const t = useT();
  const clone = Number(new URLSearchParams(useSearch()).get("clone")) || undefined;
  const source = id ?? clone;
  const job = useQuery({ queryKey: ["job", source, "form"], queryFn: () => get("/api/v1/jobs/{id}", { path: { id: source ?? 0 } }), enabled: source !== undefined, gcTime: 0, refetchOnWindowFocus: false });
  useTitle(t(id ? "job.edit" : "jobs.new"));
  if (source === undefined) return <Form start={emptyDraft(viewerZone())} />;
  if (job.error) return <ErrorNote error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return <Loader size="sm" aria-label={t("loading")} />;
  return <Form key={`${source}`} id={id} start={draftOf(job.data, id === undefined)} />;
}

function Form({ id, start }: { id?: number; start: JobInput }) {
  const t = useT();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const complain = useComplain();
  const [d, setD] = useState(start);
  const set = (c: Partial<JobInput>) => setD((before) => ({ ...before, ...c }));
  const [more, setMore] = useState(false);
  const [tab, setTab] = useState<"form" | "yaml">("form");
  const [fault, setFault] = useState<string>(); // of the YAML
  const groups = useGroups();
  const instances = useQuery({ queryKey: ["instances", d.group], queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: d.group } }), enabled: groups.data?.items.some((g) => g.name === d.group) ?? false, retry: false });
  const handlers = [...new Set(instances.data?.items.flatMap((i) => i.handlers) ?? [])].sort();

  // The default is the first group with live instances.
  useEffect(() => {
    const list = groups.data?.items;
    if (!list || d.group) return;
    const best = list.find((g) => g.instances > 0) ?? list[0];
    if (best) setD((before) => (before.group ? before : { ...before, group: best.name }));
  }, [groups.data, d.group]);

  const save = useMutation({
    mutationFn: (run: boolean) => {
      const body = tidy({ ...d, children: d.children?.filter((c) => c.job_id) });
      const saved = id ? call("put", "/api/v1/jobs/{id}", { path: { id }, body, version: d.version }) : post("/api/v1/jobs", { body });
      return saved.then((job) => ({ job, run }));
    },
    onSuccess: async ({ job, run }) => {
      void refresh("jobs", "job", "groups");
      if (run) {
        try {
          const a = await post("/api/v1/jobs/{id}/trigger", { path: { id: job.id }, body: {} });
          if (a.run_ids[0]) return navigate(`/runs/${a.run_ids[0]}`);
        } catch (e) {
          complain(e);
        }
      }
      navigate(`/jobs/${job.id}`);
    },
    onError: () => setTimeout(() => document.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus(), 50),
  });
  const error = save.error instanceof ApiError ? save.error : undefined;
  const at = (field: string) => error?.at(field);
  const others = error?.elsewhere(tab === "form" ? shownFields : []) ?? [];
  const moreFaulty = ["timeout", "start_deadline", "retries", "route_key", "shards", "retention", "author", "misfire", "block", "block_scope", "route", "retry_backoff.initial", "retry_backoff.factor", "retry_backoff.max"].some((f) => at(f));

  return (
    <form onSubmit={(e) => { e.preventDefault(); if (!fault) save.mutate(false); }} className="job-form" noValidate>
      <PageHead title={t(id ? "job.edit" : "jobs.new")}>
        <SegmentedControl size="xs" aria-label={t("form.as")} value={tab} disabled={fault !== undefined} onChange={(v) => setTab(v as typeof tab)} data={[{ value: "form", label: t("form.form") }, { value: "yaml", label: "YAML" }]} />
      </PageHead>
      {tab === "yaml" && <Suspense fallback={<Loader size="sm" aria-label={t("loading")} />}><YamlTab draft={d} onChange={setD} onFault={setFault} /></Suspense>}
      {tab === "form" && <>
      <Section title={t("form.what")}>
        <Stack gap="sm">
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
            <TextInput label={t("field.name")} value={d.name} onChange={(e) => set({ name: e.currentTarget.value })} error={at("name")} maxLength={128} data-autofocus autoFocus={!id} required />
            <Select label={t("field.group")} description={t("field.group.help")} inputWrapperOrder={["label", "input", "description", "error"]} required allowDeselect={false} searchable value={d.group || null} onChange={(g) => set({ group: g ?? "" })} error={at("group")}
              data={groups.data?.items.map((g) => ({ value: g.name, label: t("form.group", { name: g.name, n: g.instances }) })) ?? []} />
          </SimpleGrid>
          <SegmentedControl size="xs" w="fit-content" value={d.script ? "script" : "handler"} aria-label={t("form.runs")}
            onChange={(v) => set(v === "script" ? { script: { language: "bash", code: "echo \"hello, $BELFRY_PARAM\"\n" } } : { script: undefined })}
            data={[{ value: "handler", label: t("field.handler") }, { value: "script", label: t("field.script") }]} />
          {d.script ? (
            <>
              <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
              <Select label={t("field.language")} data={[...languages]} value={d.script.language} allowDeselect={false} onChange={(l) => d.script && set({ script: { ...d.script, language: l as "bash" } })} error={at("script.language")} />
              <TextInput label={t("field.remark")} description={t("field.remark.help")} inputWrapperOrder={["label", "input", "description", "error"]} value={d.script.remark ?? ""} onChange={(e) => d.script && set({ script: { ...d.script, remark: e.currentTarget.value } })} error={at("script.remark")} />
              </SimpleGrid>
              <Input.Wrapper label={t("field.code")} error={at("script.code")}>
                <Suspense fallback={<Loader size="sm" />}><CodeEditor value={d.script.code} onChange={(code) => setD((b) => (b.script ? { ...b, script: { ...b.script, code } } : b))} language={d.script.language} label={t("field.code")} /></Suspense>
              </Input.Wrapper>
              {instances.data && !instances.data.items.some((i) => d.script && i.script_languages.includes(d.script.language)) && <Text size="xs" c="var(--warn)">{t("form.nolanguage", { language: d.script.language, group: d.group })}</Text>}
            </>
          ) : (
            <Autocomplete label={t("field.handler")} required description={handlers.length ? t("form.handlers", { list: handlers.join(", ") }) : t("form.nohandlers")} inputWrapperOrder={["label", "input", "description", "error"]} value={d.handler ?? ""} onChange={(v) => set({ handler: v })} data={handlers} error={at("handler")} classNames={{ input: "mono" }} />
          )}
          <Textarea label={t("field.param")} description={t("field.param.help")} inputWrapperOrder={["label", "input", "description", "error"]} autosize minRows={2} maxRows={14} value={d.param ?? ""} onChange={(e) => set({ param: e.currentTarget.value })} error={at("param")} classNames={{ input: "mono" }} />
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
            <TextInput label={t("field.description")} value={d.description ?? ""} onChange={(e) => set({ description: e.currentTarget.value })} error={at("description")} />
            <TagsInput label={t("field.tags")} value={d.tags ?? []} onChange={(tags) => set({ tags })} error={at("tags")} maxTags={16} />
          </SimpleGrid>
        </Stack>
      </Section>
      <Section title={t("form.when")}>
        <ScheduleBuilder value={d.schedule} onChange={(schedule) => set({ schedule })} error={error} />
        <Switch mt="sm" label={t("job.enabled")} description={t("field.enabled.help")} checked={d.enabled ?? true} onChange={(e) => set({ enabled: e.currentTarget.checked })} />
      </Section>
      <Section title={t("form.policies")} right={<UnstyledButton className="link" aria-expanded={more || moreFaulty} onClick={() => setMore(!more)}>{t(more || moreFaulty ? "form.less" : "form.more")}</UnstyledButton>}>
        <Collapse in={more || moreFaulty} transitionDuration={0}>
          <Stack gap="md">
            <Policy label={t("field.misfire")} value={d.misfire ?? "skip"} values={["skip", "fire_once", "fire_all"]} prefix="misfire" onChange={(v) => set({ misfire: v as "skip" })} />
            <Policy label={t("field.block")} value={d.block ?? "serial"} values={["serial", "discard_later", "cover_early", "parallel"]} prefix="block" onChange={(v) => set({ block: v as "serial" })}>
              <SegmentedControl mt={6} size="xs" aria-label={t("field.block_scope")} value={d.block_scope ?? "cluster"} onChange={(v) => set({ block_scope: v as "cluster" })} data={[{ value: "cluster", label: t("scope.cluster") }, { value: "instance", label: t("scope.instance") }]} />
            </Policy>
            <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
              <Select label={t("field.route")} description={t(`route.${d.route ?? "any"}.help`)} inputWrapperOrder={["label", "input", "description", "error"]} data={routes.map((r) => ({ value: r, label: t(`route.${r}`) }))} value={d.route ?? "any"} allowDeselect={false} onChange={(r) => set({ route: r as "any" })} error={at("route")} />
              {d.route === "consistent_hash" && <TextInput label={t("field.route_key")} description={t("field.route_key.help")} inputWrapperOrder={["label", "input", "description", "error"]} value={d.route_key ?? ""} onChange={(e) => set({ route_key: e.currentTarget.value })} error={at("route_key")} />}
              {d.route === "broadcast" && <NumberInput label={t("field.shards")} description={t("field.shards.help")} inputWrapperOrder={["label", "input", "description", "error"]} min={0} value={d.shards ?? 0} onChange={(n) => set({ shards: Number(n) || 0 })} error={at("shards")} />}
            </SimpleGrid>
            <SimpleGrid cols={{ base: 1, sm: 3 }} spacing="sm">
              <TextInput label={t("field.timeout")} description={t("field.timeout.help")} inputWrapperOrder={["label", "input", "description", "error"]} value={d.timeout ?? ""} onChange={(e) => set({ timeout: e.currentTarget.value })} error={at("timeout")} />
              <TextInput label={t("field.start_deadline")} description={t("field.start_deadline.help")} inputWrapperOrder={["label", "input", "description", "error"]} value={d.start_deadline ?? ""} onChange={(e) => set({ start_deadline: e.currentTarget.value })} error={at("start_deadline")} />
              <NumberInput label={t("field.retries")} description={t("field.retries.help")} inputWrapperOrder={["label", "input", "description", "error"]} min={0} max={100} value={d.retries ?? 0} onChange={(n) => set({ retries: Number(n) || 0 })} error={at("retries")} />
              {(d.retries ?? 0) > 0 && <>
                <TextInput label={t("field.backoff.initial")} value={d.retry_backoff?.initial ?? "1s"} onChange={(e) => set({ retry_backoff: { ...d.retry_backoff, initial: e.currentTarget.value } })} error={at("retry_backoff.initial")} />
                <NumberInput label={t("field.backoff.factor")} min={1} step={0.5} value={d.retry_backoff?.factor ?? 2} onChange={(n) => set({ retry_backoff: { ...d.retry_backoff, factor: Number(n) || 1 } })} error={at("retry_backoff.factor")} />
                <TextInput label={t("field.backoff.max")} value={d.retry_backoff?.max ?? "5m"} onChange={(e) => set({ retry_backoff: { ...d.retry_backoff, max: e.currentTarget.value } })} error={at("retry_backoff.max")} />
              </>}
              <TextInput label={t("field.retention")} description={t("field.retention.help")} inputWrapperOrder={["label", "input", "description", "error"]} placeholder={t("field.retention.server")} value={d.retention ?? ""} onChange={(e) => set({ retention: e.currentTarget.value })} error={at("retention")} />
              <TextInput label={t("field.author")} value={d.author ?? ""} maxLength={64} onChange={(e) => set({ author: e.currentTarget.value })} error={at("author")} />
            </SimpleGrid>
          </Stack>
        </Collapse>
        {!(more || moreFaulty) && <Text size="sm" c="dimmed">{t("form.summary", { misfire: t(`misfire.${d.misfire ?? "skip"}`), block: t(`block.${d.block ?? "serial"}`), route: t(`route.${d.route ?? "any"}`), n: d.retries ?? 0 })}</Text>}
      </Section>
      <Section title={t("form.after")}>
        <Stack gap="md">
          <Children id={id} value={d.children ?? []} onChange={(children) => set({ children })} error={at("children")} />
          <Alerts value={d.alert ?? {}} onChange={(alert) => set({ alert })} errors={{ channels: at("alert.channels"), on: at("alert.on") }} />
        </Stack>
      </Section>
      </>}
      {save.error && (
        <Alert color="red" variant="light" role="alert" mt="sm" title={t("form.refused")}>
          {error?.status === 409 ? error.message : others.length ? others.map((o) => <div key={o}>{o}</div>) : error?.problem.errors?.length ? t("form.fields") : errorText(t, save.error)}
        </Alert>
      )}
      <Group mt="md" gap="xs" className="form-actions">
        <Button type="submit" disabled={fault !== undefined} loading={save.isPending && !save.variables}>{t("save")}</Button>
        <Button variant="default" disabled={fault !== undefined} loading={save.isPending && save.variables} onClick={() => save.mutate(true)}>{t("save.run")}</Button>
        <Button variant="subtle" color="gray" onClick={() => (history.length > 1 ? history.back() : navigate("/jobs"))}>{t("cancel")}</Button>
      </Group>
    </form>
  );
}

/** Policy selects a policy, and explains each choice. */
function Policy({ label, value, values, prefix, onChange, children }: { label: string; value: string; values: string[]; prefix: "misfire" | "block"; onChange: (v: string) => void; children?: ReactNode }) {
  const t = useT();
  return (
    <div>
      <Radio.Group label={label} value={value} onChange={onChange}>
        <Stack gap={6} mt={4}>{values.map((v) => <Radio key={v} value={v} size="xs" label={t(`${prefix}.${v}` as Key)} description={t(`${prefix}.${v}.help` as Key)} />)}</Stack>
      </Radio.Group>
      {children}
    </div>
  );
}
