import { Group, Loader, Text } from "@mantine/core";
import { useEffect, useRef, useState } from "react";
import { get, type JobInput } from "../api/client";
import { useT } from "../i18n";
import { findJobs } from "../lib/findjobs";
import { draftFrom, fromYaml, toYaml, type NamedChild } from "../lib/jobyaml";
import { Copy } from "./basics";
import CodeEditor from "./codeeditor";

/** childId returns the id of the job that a file names by group/name. */
async function childId(c: NamedChild): Promise<number | undefined> {
  if (c.job_id !== undefined) return c.job_id;
  const [group, ...rest] = (c.job ?? "").split("/");
  const name = rest.join("/");
  const found = await findJobs({ group, q: name, limit: 500 }).catch(() => undefined);
  return found?.find((j) => j.name === name)?.id;
}

/**
 * YamlTab edits a draft as YAML. Each change of the text changes the draft. If the text is faulty, onFault is called with the fault,
 * else with undefined. typed is a text that was typed before, and that the draft may lack because it is faulty.
 */
export default function YamlTab({
  draft,
  typed,
  onText,
  onChange,
  onFault,
}: {
  draft: JobInput;
  typed?: string;
  onText: (text: string) => void;
  onChange: (d: JobInput) => void;
  onFault: (fault: string | undefined) => void;
}) {
  const t = useT();
  const [text, setText] = useState<string>();
  const [fault, setFault] = useState<string>();
  const turn = useRef(0);
  const first = useRef(draft);
  const before = useRef(typed);

  useEffect(() => {
    let gone = false;
    if (before.current !== undefined) {
      void take(before.current);
      return;
    }
    void (async () => {
      const ids = first.current.children?.map((c) => c.job_id) ?? [];
      const names = new Map(
        await Promise.all(
          ids.map(
            async (id) =>
              [
                id,
                await get("/api/v1/jobs/{id}", { path: { id } }).then(
                  (j) => `${j.group}/${j.name}`,
                  () => undefined,
                ),
              ] as const,
          ),
        ),
      );
      if (!gone) setText(toYaml(first.current, (id) => names.get(id)));
    })();
    return () => {
      gone = true;
    };
    // oxlint-disable-next-line react-hooks/exhaustive-deps -- after its creation the tab owns its text
  }, []);

  const report = (f: string | undefined) => {
    setFault(f);
    onFault(f);
  };
  async function take(next: string) {
    setText(next);
    onText(next);
    const mine = ++turn.current;
    try {
      const { children = [], ...fields } = fromYaml(next);
      if (children.some((c) => c.job_id === undefined)) onFault(t("loading"));
      const ids = await Promise.all(children.map(childId));
      if (mine !== turn.current) return; // the text has changed again
      const lost = children.find((_, i) => ids[i] === undefined);
      if (lost) return report(t("yaml.nochild", { name: lost.job ?? "" }));
      onChange(
        draftFrom(
          {
            ...fields,
            children: children.map((c, i) => ({ job_id: ids[i] ?? 0, on: (c.on ?? "success") as "success" })),
          },
          first.current.version,
        ),
      );
      report(undefined);
    } catch (e) {
      if (mine === turn.current) report(e instanceof Error ? e.message : String(e));
    }
  }

  if (text === undefined) return <Loader size="sm" aria-label={t("loading")} />;
  return (
    <div className="yaml-tab">
      <Group justify="space-between" mb={4}>
        <Text size="xs" c="dimmed">
          {t("yaml.help")}
        </Text>
        <Copy text={text} />
      </Group>
      <CodeEditor
        value={text}
        onChange={(next) => {
          if (next !== text) void take(next);
        }}
        language="yaml"
        label="YAML"
      />
      {fault && (
        <Text size="sm" c="var(--bad)" mt={4} role="status">
          {fault}
        </Text>
      )}
    </div>
  );
}
