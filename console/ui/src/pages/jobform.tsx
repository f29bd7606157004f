import {
  Autocomplete,
  Button,
  Input,
  Loader,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  Switch,
  TagsInput,
  Text,
  Textarea,
  TextInput,
} from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { useSearch } from "wouter";
import { ApiError, call, get, post, type JobInput } from "../api/client";
import { useT } from "../i18n";
import { draftOf, emptyDraft, tidy } from "../lib/draft";
import { useTitle } from "../lib/hooks";
import { dropDraft, keepDraft, keptDraft } from "../lib/keptdrafts";
import { leaveNow, useLeaving } from "../lib/leaving";
import { useMe } from "../lib/me";
import { dateTime, viewerZone } from "../lib/time";
import { useComplain, useRefresh } from "../parts/actions";
import { ErrorNote, errorText, PageHead, Section } from "../parts/basics";
import { useGroups } from "../parts/filters";
import { AskLeaving, FormBar } from "../parts/formbar";
import { Alerts, Children } from "../parts/jobfollowups";
import { Policies } from "../parts/jobpolicies";
import { ScheduleBuilder } from "../parts/schedulebuilder";
import { VersionConflict } from "../parts/versionconflict";

const CodeEditor = lazy(() => import("../parts/codeeditor"));
const YamlTab = lazy(() => import("../parts/yamltab"));

const languages = ["bash", "sh", "python", "node", "php", "powershell", "go"] as const;
const shownFields = [
  "group",
  "name",
  "description",
  "tags",
  "schedule.expr",
  "schedule.every",
  "schedule.delay",
  "schedule.at",
  "schedule.time_zone",
  "schedule.start_at",
  "schedule.end_at",
  "schedule.jitter",
  "schedule.calendar",
  "handler",
  "script.code",
  "script.language",
  "script.remark",
  "author",
  "misfire",
  "block",
  "block_scope",
  "children",
  "alert.channels",
  "alert.on",
  "param",
  "route",
  "route_key",
  "shards",
  "timeout",
  "start_deadline",
  "retries",
  "retry_backoff.initial",
  "retry_backoff.factor",
  "retry_backoff.max",
  "retention",
];

export default function JobForm({ id }: { id?: number }) {
  const t = useT();
  const clone = Number(new URLSearchParams(useSearch()).get("clone")) || undefined;
  const source = id ?? clone;
  const job = useQuery({
    queryKey: ["job", source, "form"],
    queryFn: () => get("/api/v1/jobs/{id}", { path: { id: source ?? 0 } }),
    enabled: source !== undefined,
    gcTime: 0,
    refetchOnWindowFocus: false,
  });
  useTitle(t(id ? "job.edit" : "jobs.new"));
  if (source === undefined) return <Form name="new" start={emptyDraft(viewerZone())} />;
  if (job.error) return <ErrorNote error={job.error} retry={() => void job.refetch()} />;
  if (!job.data) return <Loader size="sm" aria-label={t("loading")} />;
  return (
    <Form
      key={`${source}`}
      name={id ? `${id}` : `clone-${clone}`}
      id={id}
      start={draftOf(job.data, id === undefined)}
    />
  );
}

/** Form edits a job. name is the place of its draft, which survives a reload and an expired session. */
function Form({ id, name, start }: { id?: number; name: string; start: JobInput }) {
  const t = useT();
  const me = useMe();
  const refresh = useRefresh();
  const complain = useComplain();
  const [kept, setKept] = useState(() => keptDraft(me.username, name));
  const [base, setBase] = useState(start); // what the server has
  const [d, setD] = useState(kept?.draft ?? start);
  const set = (c: Partial<JobInput>) => setD((before) => ({ ...before, ...c }));
  const [tab, setTab] = useState<"form" | "yaml">(kept?.yaml === undefined ? "form" : "yaml");
  const [yaml, setYaml] = useState(kept?.yaml); // the text of the YAML tab since it was changed
  const [fault, setFault] = useState<string>(); // of the YAML
  const groups = useGroups();
  const instances = useQuery({
    queryKey: ["instances", d.group],
    queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: d.group } }),
    enabled: groups.data?.items.some((g) => g.name === d.group) ?? false,
    retry: false,
  });
  const handlers = [...new Set(instances.data?.items.flatMap((i) => i.handlers) ?? [])].sort();

  // The default is the first group with live instances.
  useEffect(() => {
    const list = groups.data?.items;
    if (!list || d.group) return;
    const best = list.find((g) => g.instances > 0) ?? list[0];
    if (!best) return;
    setD((before) => (before.group ? before : { ...before, group: best.name }));
    setBase((before) => (before.group ? before : { ...before, group: best.name }));
  }, [groups.data, d.group]);

  const changed = yaml !== undefined || JSON.stringify(d) !== JSON.stringify(base);
  const leaving = useLeaving(changed);
  useEffect(() => {
    if (changed) keepDraft(me.username, name, { draft: d, yaml });
    else dropDraft(me.username, name);
  }, [changed, d, yaml, me.username, name]);
  const drop = () => {
    dropDraft(me.username, name);
    setKept(undefined);
  };
  /** restart shows another draft: the saved version, or the one of the server. */
  const restart = (draft: JobInput) => {
    drop();
    save.reset();
    setBase(draft);
    setD(draft);
    setYaml(undefined);
    setFault(undefined);
    setTab("form");
  };
  const leave = (to: string) => {
    drop();
    leaveNow(to);
  };

  const save = useMutation({
    mutationFn: ({ run, version = d.version }: { run: boolean; version?: number }) => {
      const body = tidy({
        ...d,
        ...(version === undefined ? {} : { version }),
        children: d.children?.filter((c) => c.job_id),
      });
      const saved = id
        ? call("put", "/api/v1/jobs/{id}", { path: { id }, body, version })
        : post("/api/v1/jobs", { body });
      return saved.then((job) => ({ job, run }));
    },
    onSuccess: async ({ job, run }) => {
      void refresh("jobs", "job", "groups");
      if (run) {
        try {
          const a = await post("/api/v1/jobs/{id}/trigger", { path: { id: job.id }, body: {} });
          if (a.run_ids[0]) return leave(`/runs/${a.run_ids[0]}`);
        } catch (e) {
          complain(e);
        }
      }
      leave(`/jobs/${job.id}`);
    },
    onError: () => setTimeout(() => document.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus(), 50),
  });
  const error = save.error instanceof ApiError ? save.error : undefined;
  const at = (field: string) => error?.at(field);
  const others = error?.elsewhere(tab === "form" ? shownFields : []) ?? [];

  const refusal = !save.error ? undefined : error?.status === 409 && id ? (
    <VersionConflict
      id={id}
      draft={d}
      message={error.message}
      onLoad={restart}
      onKeep={(version) => {
        set({ version });
        save.mutate({ run: false, version });
      }}
    />
  ) : error?.status === 409 ? (
    error.message
  ) : others.length ? (
    others.map((o) => <div key={o}>{o}</div>)
  ) : error?.problem.errors?.length ? (
    t("form.fields")
  ) : (
    errorText(t, save.error)
  );

  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        if (!fault) save.mutate({ run: false });
      }}
      className="job-form"
      noValidate
    >
      <PageHead title={t(id ? "job.edit" : "jobs.new")}>
        <SegmentedControl
          size="xs"
          aria-label={t("form.as")}
          value={tab}
          disabled={fault !== undefined}
          onChange={(v) => {
            setTab(v as typeof tab);
            setYaml(undefined);
          }}
          data={[
            { value: "form", label: t("form.form") },
            { value: "yaml", label: "YAML" },
          ]}
        />
      </PageHead>
      {kept && (
        <Text size="sm" mb="sm" role="status">
          {t("draft.restored", { at: dateTime(kept.at) })}{" "}
          <button type="button" className="link" onClick={() => restart(start)}>
            {t("draft.drop")}
          </button>
        </Text>
      )}
      {tab === "yaml" && (
        <Suspense fallback={<Loader size="sm" aria-label={t("loading")} />}>
          <YamlTab draft={d} typed={yaml} onText={setYaml} onChange={setD} onFault={setFault} />
        </Suspense>
      )}
      {tab === "form" && (
        <>
          <Section title={t("form.what")}>
            <Stack gap="sm">
              <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
                <TextInput
                  label={t("field.name")}
                  value={d.name}
                  onChange={(e) => set({ name: e.currentTarget.value })}
                  error={at("name")}
                  maxLength={128}
                  data-autofocus
                  autoFocus={!id}
                  required
                />
                <Select
                  label={t("field.group")}
                  description={t("field.group.help")}
                  inputWrapperOrder={["label", "input", "description", "error"]}
                  required
                  allowDeselect={false}
                  searchable
                  value={d.group || null}
                  onChange={(g) => set({ group: g ?? "" })}
                  error={at("group")}
                  data={
                    groups.data?.items.map((g) => ({
                      value: g.name,
                      label: t("form.group", { name: g.name, n: g.instances }),
                    })) ?? []
                  }
                />
              </SimpleGrid>
              <SegmentedControl
                size="xs"
                w="fit-content"
                value={d.script ? "script" : "handler"}
                aria-label={t("form.runs")}
                onChange={(v) =>
                  set(
                    v === "script"
                      ? { script: { language: "bash", code: 'echo "hello, $BELFRY_PARAM"\n' } }
                      : { script: undefined },
                  )
                }
                data={[
                  { value: "handler", label: t("field.handler") },
                  { value: "script", label: t("field.script") },
                ]}
              />
              {d.script ? (
                <>
                  <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
                    <Select
                      label={t("field.language")}
                      data={[...languages]}
                      value={d.script.language}
                      allowDeselect={false}
                      onChange={(l) => d.script && set({ script: { ...d.script, language: l as "bash" } })}
                      error={at("script.language")}
                    />
                    <TextInput
                      label={t("field.remark")}
                      description={t("field.remark.help")}
                      inputWrapperOrder={["label", "input", "description", "error"]}
                      value={d.script.remark ?? ""}
                      onChange={(e) => d.script && set({ script: { ...d.script, remark: e.currentTarget.value } })}
                      error={at("script.remark")}
                    />
                  </SimpleGrid>
                  <Input.Wrapper label={t("field.code")} error={at("script.code")}>
                    <Suspense fallback={<Loader size="sm" />}>
                      <CodeEditor
                        value={d.script.code}
                        onChange={(code) => setD((b) => (b.script ? { ...b, script: { ...b.script, code } } : b))}
                        language={d.script.language}
                        label={t("field.code")}
                      />
                    </Suspense>
                  </Input.Wrapper>
                  {instances.data &&
                    !instances.data.items.some((i) => d.script && i.script_languages.includes(d.script.language)) && (
                      <Text size="xs" c="var(--warn)">
                        {t("form.nolanguage", { language: d.script.language, group: d.group })}
                      </Text>
                    )}
                </>
              ) : (
                <Autocomplete
                  label={t("field.handler")}
                  required
                  description={
                    handlers.length ? t("form.handlers", { list: handlers.join(", ") }) : t("form.nohandlers")
                  }
                  inputWrapperOrder={["label", "input", "description", "error"]}
                  value={d.handler ?? ""}
                  onChange={(v) => set({ handler: v })}
                  data={handlers}
                  error={at("handler")}
                  classNames={{ input: "mono" }}
                />
              )}
              <Textarea
                label={t("field.param")}
                description={t("field.param.help")}
                inputWrapperOrder={["label", "input", "description", "error"]}
                autosize
                minRows={2}
                maxRows={14}
                value={d.param ?? ""}
                onChange={(e) => set({ param: e.currentTarget.value })}
                error={at("param")}
                classNames={{ input: "mono" }}
              />
              <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
                <TextInput
                  label={t("field.description")}
                  value={d.description ?? ""}
                  onChange={(e) => set({ description: e.currentTarget.value })}
                  error={at("description")}
                />
                <TagsInput
                  label={t("field.tags")}
                  value={d.tags ?? []}
                  onChange={(tags) => set({ tags })}
                  error={at("tags")}
                  maxTags={16}
                />
              </SimpleGrid>
            </Stack>
          </Section>
          <Section title={t("form.when")}>
            <ScheduleBuilder value={d.schedule} onChange={(schedule) => set({ schedule })} error={error} />
            <Switch
              mt="sm"
              label={t("job.enabled")}
              description={t("field.enabled.help")}
              checked={d.enabled ?? true}
              onChange={(e) => set({ enabled: e.currentTarget.checked })}
            />
          </Section>
          <Policies d={d} set={set} at={at} />
          <Section title={t("form.after")}>
            <Stack gap="md">
              <Children
                id={id}
                value={d.children ?? []}
                onChange={(children) => set({ children })}
                error={at("children")}
              />
              <Alerts
                value={d.alert ?? {}}
                onChange={(alert) => set({ alert })}
                errors={{ channels: at("alert.channels"), on: at("alert.on") }}
              />
            </Stack>
          </Section>
        </>
      )}
      <FormBar fault={refusal}>
        <Button type="submit" disabled={fault !== undefined} loading={save.isPending && !save.variables.run}>
          {t("save")}
        </Button>
        <Button
          variant="default"
          disabled={fault !== undefined}
          loading={save.isPending && save.variables.run}
          onClick={() => save.mutate({ run: true })}
        >
          {t("save.run")}
        </Button>
        <Button variant="subtle" color="gray" onClick={() => (history.length > 1 ? history.back() : leave("/jobs"))}>
          {t("cancel")}
        </Button>
      </FormBar>
      <AskLeaving
        go={
          leaving.go &&
          (() => {
            drop();
            leaving.go?.();
          })
        }
        stay={leaving.stay}
      />
    </form>
  );
}
