import { Button, Loader, SegmentedControl, Stack, Switch, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { useSearch } from "wouter";
import { ApiError, call, get, post, type JobInput } from "../api/client";
import { useT } from "../i18n";
import { draftOf, emptyDraft, shownFields, tidy } from "../lib/draft";
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
import { JobWhat, type Change } from "../parts/jobwhat";
import { Policies } from "../parts/jobpolicies";
import { ScheduleBuilder } from "../parts/schedulebuilder";
import { VersionConflict } from "../parts/versionconflict";

const YamlTab = lazy(() => import("../parts/yamltab"));

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
  const set: Change = (c) => setD((before) => ({ ...before, ...(typeof c === "function" ? c(before) : c) }));
  const [tab, setTab] = useState<"form" | "yaml">(kept?.yaml === undefined ? "form" : "yaml");
  const [yaml, setYaml] = useState(kept?.yaml); // the text of the YAML tab since it was changed
  const [fault, setFault] = useState<string>(); // of the YAML
  const groups = useGroups();

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
          <JobWhat d={d} set={set} at={at} fresh={!id} groups={groups.data?.items ?? []} />
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
          <Policies
            d={d}
            xxlJob={groups.data?.items.some((g) => g.name === d.group && g.xxl_job) ?? false}
            set={set}
            at={at}
          />
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
