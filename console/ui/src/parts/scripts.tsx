import { Button, Group, Loader, Select, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { useLocation } from "wouter";
import { ApiError, get, post, type Job } from "../api/client";
import { useT } from "../i18n";
import { useMay } from "../lib/me";
import { dateTime } from "../lib/time";
import { Confirm, useComplain, useRefresh } from "./actions";
import { ErrorNote, errorText, Section, Snippet } from "./basics";

const CodeEditor = lazy(() => import("./codeeditor"));

/** Scripts shows all versions of a job's script: the code, the difference between two versions, and an editor for the next one. */
export function Scripts({ job }: { job: Job }) {
  const t = useT();
  const may = useMay();
  const refresh = useRefresh();
  const list = useQuery({
    queryKey: ["scripts", job.id, job.version],
    queryFn: () => get("/api/v1/jobs/{id}/scripts", { path: { id: job.id }, query: { limit: 500 } }),
    placeholderData: (before) => before,
  });
  const [chosen, setChosen] = useState<number>();
  const [against, setAgainst] = useState<number>();
  const [editing, setEditing] = useState(false);
  const [restoring, setRestoring] = useState(false);
  const versions = list.data?.items ?? [];
  const newest = versions[0]?.version;
  const version = chosen ?? newest;
  const one = useQuery({
    queryKey: ["script", job.id, version, against],
    queryFn: () =>
      get("/api/v1/jobs/{id}/scripts/{version}", {
        path: { id: job.id, version: version ?? 1 },
        query: against ? { diff: against } : {},
      }),
    enabled: version !== undefined,
    placeholderData: (before) => before,
  });
  const label = (v: number) => {
    const s = versions.find((s) => s.version === v);
    return s ? `${s.version} · ${dateTime(s.created_at)} · ${s.author}` : String(v);
  };
  return (
    <Section
      title={t("scripts.title")}
      right={
        !editing && (
          <Group gap="xs">
            <Select
              size="xs"
              aria-label={t("scripts.version")}
              allowDeselect={false}
              value={String(version ?? "")}
              onChange={(v) => {
                setChosen(Number(v));
                if (Number(v) === against) setAgainst(undefined);
              }}
              data={versions.map((s) => ({ value: String(s.version), label: label(s.version) }))}
              w={270}
            />
            {versions.length > 1 && (
              <Select
                size="xs"
                aria-label={t("scripts.against")}
                placeholder={t("scripts.against")}
                clearable
                value={against ? String(against) : null}
                onChange={(v) => setAgainst(v ? Number(v) : undefined)}
                data={versions
                  .filter((s) => s.version !== version)
                  .map((s) => ({ value: String(s.version), label: t("scripts.diff", { n: s.version }) }))}
                w={200}
              />
            )}
            {may.operate && version !== undefined && version !== newest && (
              <Button size="xs" variant="default" onClick={() => setRestoring(true)}>
                {t("scripts.restore", { n: version })}
              </Button>
            )}
            {may.operate && version === newest && one.data && (
              <Button
                size="xs"
                variant="default"
                onClick={() => {
                  setAgainst(undefined);
                  setEditing(true);
                }}
              >
                {t("scripts.edit")}
              </Button>
            )}
          </Group>
        )
      }
    >
      {list.error && <ErrorNote error={list.error} />}
      {one.error && <ErrorNote error={one.error} />}
      {editing && one.data ? (
        <Editor
          job={job}
          language={one.data.language}
          start={one.data.code ?? ""}
          onClose={() => {
            setEditing(false);
            setChosen(undefined);
          }}
        />
      ) : (
        one.data && (
          <>
            <Group gap="xs" mb={4}>
              <span className="pill">{one.data.language}</span>
              {one.data.remark && (
                <Text size="sm" c="dimmed">
                  {one.data.remark}
                </Text>
              )}
            </Group>
            {against && one.data.diff !== undefined ? (
              <pre className="code-block diff" tabIndex={0}>
                {one.data.diff
                  ? one.data.diff
                      .trimEnd()
                      .split("\n")
                      .map((l, i) => (
                        <div
                          key={i}
                          className={/^\+(?!\+\+)/.test(l) ? "added" : /^-(?!--)/.test(l) ? "removed" : undefined}
                        >
                          {l || " "}
                        </div>
                      ))
                  : t("scripts.same")}
              </pre>
            ) : (
              <Snippet code={one.data.code ?? ""} />
            )}
          </>
        )
      )}
      {restoring && version !== undefined && (
        <Confirm
          title={t("scripts.restore", { n: version })}
          text={t("scripts.restore.text", { n: version })}
          action={t("scripts.restore", { n: version })}
          onClose={() => setRestoring(false)}
          onConfirm={async () => {
            const now = await post("/api/v1/jobs/{id}/scripts/{version}/restore", {
              path: { id: job.id, version },
              body: {},
            });
            notifications.show({ message: t("scripts.saved", { n: now.version }) });
            setChosen(undefined);
            setAgainst(undefined);
            await refresh("job", "scripts");
          }}
        />
      )}
    </Section>
  );
}

function Editor({ job, language, start, onClose }: { job: Job; language: string; start: string; onClose: () => void }) {
  const t = useT();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const complain = useComplain();
  const [code, setCode] = useState(start);
  const [remark, setRemark] = useState("");
  const save = useMutation({
    mutationFn: (run: boolean) =>
      post("/api/v1/jobs/{id}/scripts", {
        path: { id: job.id },
        body: { language: language as "sh", code, remark },
      }).then((saved) => ({ saved, run })),
    onSuccess: async ({ saved, run }) => {
      notifications.show({ message: t("scripts.saved", { n: saved.version }) });
      await refresh("job", "scripts");
      onClose();
      if (!run) return;
      try {
        const a = await post("/api/v1/jobs/{id}/trigger", { path: { id: job.id }, body: {} });
        if (a.run_ids[0]) navigate(`/runs/${a.run_ids[0]}`);
      } catch (e) {
        complain(e);
      }
    },
  });
  const error = save.error instanceof ApiError ? save.error : undefined;
  const shown = [error?.at("code"), error?.at("remark")];
  return (
    <form
      onSubmit={(e) => {
        e.preventDefault();
        save.mutate(false);
      }}
    >
      <Suspense fallback={<Loader size="sm" />}>
        <CodeEditor value={code} onChange={setCode} language={language} label={t("field.code")} />
      </Suspense>
      {shown[0] && (
        <Text size="sm" c="var(--bad)" role="alert">
          {shown[0]}
        </Text>
      )}
      <TextInput
        mt="xs"
        size="xs"
        maw={520}
        label={t("scripts.remark")}
        value={remark}
        onChange={(e) => setRemark(e.currentTarget.value)}
        error={shown[1]}
        maxLength={1024}
      />
      {save.error && !shown.some(Boolean) && (
        <Text size="sm" c="var(--bad)" role="alert">
          {errorText(t, save.error)}
        </Text>
      )}
      <Group gap="xs" mt="xs">
        <Button type="submit" size="xs" loading={save.isPending && !save.variables} disabled={code === start}>
          {t("save")}
        </Button>
        <Button
          size="xs"
          variant="default"
          loading={save.isPending && save.variables}
          disabled={code === start}
          onClick={() => save.mutate(true)}
        >
          {t("save.run")}
        </Button>
        <Button size="xs" variant="subtle" color="gray" onClick={onClose}>
          {t("cancel")}
        </Button>
      </Group>
    </form>
  );
}
