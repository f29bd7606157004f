import {
  Autocomplete,
  Input,
  Loader,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
  Textarea,
  TextInput,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { get, type Answer, type Group, type JobInput } from "../api/client";
import { useT } from "../i18n";
import { anyHandler } from "../lib/executors";
import { Section } from "./basics";

const CodeEditor = lazy(() => import("./codeeditor"));

const languages = ["bash", "sh", "python", "node", "php", "powershell", "go"];
/** Only executors of XXL-JOB run scripts in Groovy. */
const groovy = "groovy";

/** Change changes fields of a draft. The function form receives the present draft. */
export type Change = (c: Partial<JobInput> | ((before: JobInput) => Partial<JobInput>)) => void;

interface Fields {
  d: JobInput;
  set: Change;
  at: (field: string) => string | undefined;
}

/** JobWhat is the part of a job's form about its name and what it runs. fresh is true for a new job. */
export function JobWhat({ d, set, at, fresh, groups }: Fields & { fresh: boolean; groups: Group[] }) {
  const t = useT();
  const instances = useQuery({
    queryKey: ["instances", d.group],
    queryFn: () => get("/api/v1/groups/{name}/instances", { path: { name: d.group } }),
    enabled: groups.some((g) => g.name === d.group),
    retry: false,
  });
  const xxlJob = groups.some((g) => g.name === d.group && g.xxl_job);
  const offered = [...new Set(instances.data?.items.flatMap((i) => i.handlers) ?? [])].sort();
  const handlers = offered.filter((h) => h !== anyHandler);

  return (
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
            autoFocus={fresh}
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
            data={groups.map((g) => ({
              value: g.name,
              label: t("form.group", { name: g.name, n: g.instances }),
            }))}
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
          <ScriptFields d={d} script={d.script} xxlJob={xxlJob} set={set} at={at} instances={instances.data?.items} />
        ) : (
          <Autocomplete
            label={t("field.handler")}
            required
            description={
              handlers.length
                ? t("form.handlers", { list: handlers.join(", ") })
                : t(offered.length ? "form.anyhandler" : "form.nohandlers")
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
        <TextInput
          type="url"
          label={t("field.runbook_url")}
          description={t("field.runbook_url.help")}
          inputWrapperOrder={["label", "input", "description", "error"]}
          placeholder="https://"
          value={d.runbook_url ?? ""}
          onChange={(e) => set({ runbook_url: e.currentTarget.value })}
          error={at("runbook_url")}
        />
      </Stack>
    </Section>
  );
}

function ScriptFields({
  d,
  script,
  xxlJob,
  set,
  at,
  instances,
}: Fields & {
  script: NonNullable<JobInput["script"]>;
  xxlJob: boolean;
  instances?: Answer<"/api/v1/groups/{name}/instances", "get">["items"];
}) {
  const t = useT();
  return (
    <>
      <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
        <Select
          label={t("field.language")}
          data={xxlJob || script.language === groovy ? [...languages, groovy] : languages}
          value={script.language}
          allowDeselect={false}
          onChange={(l) => set({ script: { ...script, language: l as "bash" } })}
          error={at("script.language")}
        />
        <TextInput
          label={t("field.remark")}
          description={t("field.remark.help")}
          inputWrapperOrder={["label", "input", "description", "error"]}
          value={script.remark ?? ""}
          onChange={(e) => set({ script: { ...script, remark: e.currentTarget.value } })}
          error={at("script.remark")}
        />
      </SimpleGrid>
      <Input.Wrapper label={t("field.code")} error={at("script.code")}>
        <Suspense fallback={<Loader size="sm" />}>
          <CodeEditor
            value={script.code}
            onChange={(code) => set((b) => (b.script ? { script: { ...b.script, code } } : {}))}
            language={script.language}
            label={t("field.code")}
          />
        </Suspense>
      </Input.Wrapper>
      {instances && !instances.some((i) => i.script_languages.includes(script.language)) && (
        <Text size="xs" c="var(--warn)">
          {t("form.nolanguage", { language: script.language, group: d.group })}
        </Text>
      )}
    </>
  );
}
