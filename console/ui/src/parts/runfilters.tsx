import { TextInput } from "@mantine/core";
import { useState } from "react";
import { useT, type Key, type Translate } from "../i18n";
import { showsPlanned } from "../lib/bulk";
import { clock } from "../lib/time";
import { allReasons, causes, reasonText, states } from "./basics";
import { range } from "../lib/timerange";
import { Chips, GroupPick, Pick, SearchField, useMore } from "./filters";
import { JobPick } from "./jobpick";
import { TimeChips } from "./timechips";

export const runFilters = [
  "job_id",
  "group",
  "state",
  "cause",
  "reason",
  "instance",
  "from",
  "to",
  "planned",
  "q",
  "bulk_id",
] as const;
type Filters = Record<(typeof runFilters)[number], string>;
type Set = (change: Partial<Filters>) => void;

/** RunFilters are the filters of the list of runs. jobName is the name of the job that they select. On phones, most of them open on demand. */
export function RunFilters({ f, set, jobName }: { f: Filters; set: Set; jobName?: string }) {
  const t = useT();
  const { more, button } = useMore(false); // those that are set are shown as chips
  return (
    <>
      <div className="filters">
        <SearchField value={f.q} onChange={(text) => set(searchFor(text, f))} label={t("runs.search")} />
        <Chips
          label={t("run.state")}
          values={states}
          value={f.state}
          onChange={(state) => set({ state })}
          name={(s) => t(`state.${s}`)}
        />
        {button}
        {more && <TimeChips from={f.from} to={f.to} onChange={set} />}
        {more && (
          <button
            type="button"
            className="chip"
            aria-pressed={showsPlanned(f)}
            onClick={() => set({ planned: f.planned ? "" : "true" })}
          >
            {t("filter.planned")}
          </button>
        )}
      </div>
      <div className="filters">
        {chosen(t, f, jobName).map(({ name, value, without }) => (
          <button key={name} type="button" className="chip" aria-pressed="true" onClick={() => set(without)}>
            {t("filter.is", { name: t(name), value })} <span aria-hidden="true">×</span>
          </button>
        ))}
        {more && <Picks f={f} set={set} />}
      </div>
    </>
  );
}

/**
 * searchFor returns the change of the filters that starts a text search. The server reads each run of a search, so without other wishes it begins
 * with the failed runs of the last day. A text of one character is no search.
 */
function searchFor(text: string, f: Filters): Partial<Filters> {
  const q = text.trim().length < 2 ? "" : text;
  if (!q || f.q || f.state || f.from || f.to) return { q };
  return { q, state: "failed", ...range("24h", new Date()) };
}

/** chosen returns the filters that are set, except the states: their names, their values as people read them, and the change that removes them. */
function chosen(t: Translate, f: Filters, jobName?: string) {
  const out: { name: Key; value: string; without: Partial<Filters> }[] = [];
  const now = new Date();
  if (f.from || f.to)
    out.push({
      name: "filter.time",
      value: `${f.from ? clock(f.from, now) : ""} – ${f.to ? clock(f.to, now) : ""}`,
      without: { from: "", to: "" },
    });
  if (f.job_id) out.push({ name: "field.job", value: jobName ?? `#${f.job_id}`, without: { job_id: "" } });
  if (f.group) out.push({ name: "field.group", value: f.group, without: { group: "" } });
  if (f.cause) out.push({ name: "run.cause", value: t(`cause.${f.cause}` as Key), without: { cause: "" } });
  if (f.reason) out.push({ name: "run.reason", value: reasonText(t, f.reason), without: { reason: "" } });
  if (f.bulk_id) out.push({ name: "nav.bulk", value: `#${f.bulk_id}`, without: { bulk_id: "" } });
  if (f.instance) out.push({ name: "run.instance", value: f.instance, without: { instance: "" } });
  return out;
}

/** Picks set the filters that are not set yet. */
function Picks({ f, set }: { f: Filters; set: Set }) {
  const t = useT();
  return (
    <>
      {!f.job_id && (
        <JobPick compact hideLabel label={t("field.job")} onChange={(id) => set({ job_id: id ? String(id) : "" })} />
      )}
      {!f.group && <GroupPick value="" onChange={(group) => set({ group })} />}
      {!f.cause && (
        <Pick
          label={t("run.cause")}
          value=""
          onChange={(cause) => set({ cause })}
          data={causes.map((c) => ({ value: c, label: t(`cause.${c}`) }))}
          width={130}
        />
      )}
      {!f.reason && (
        <Pick
          label={t("run.reason")}
          value=""
          onChange={(reason) => set({ reason })}
          data={allReasons.map((r) => ({ value: r, label: reasonText(t, r) }))}
          width={170}
        />
      )}
      {!f.instance && <InstanceField onChange={(instance) => set({ instance })} />}
    </>
  );
}

/** InstanceField filters by an instance's name. The name is compared as a whole, so the list changes only after Enter or when the field is left. */
function InstanceField({ onChange }: { onChange: (instance: string) => void }) {
  const t = useT();
  const [text, setText] = useState("");
  const done = () => text.trim() && onChange(text.trim());
  return (
    <TextInput
      size="xs"
      w={130}
      placeholder={t("run.instance")}
      aria-label={t("run.instance")}
      value={text}
      onChange={(e) => setText(e.currentTarget.value)}
      onBlur={done}
      onKeyDown={(e) => {
        if (e.key === "Enter" && !e.nativeEvent.isComposing) done();
      }}
    />
  );
}
