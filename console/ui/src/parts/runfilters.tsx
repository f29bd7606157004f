import { useT } from "../i18n";
import { allReasons, causes, reasonText, states } from "./basics";
import { Chips, GroupPick, Pick } from "./filters";

export const runFilters = ["job_id", "group", "state", "cause", "reason", "instance", "from", "to"] as const;
type Filters = Record<(typeof runFilters)[number], string>;

/** RunFilters are the filters of the list of runs. jobName is the name of the job that they select. */
export function RunFilters({
  f,
  set,
  jobName,
}: {
  f: Filters;
  set: (change: Partial<Filters>) => void;
  jobName?: string;
}) {
  const t = useT();
  return (
    <div className="filters">
      <Chips
        label={t("run.state")}
        values={states}
        value={f.state}
        onChange={(state) => set({ state })}
        name={(s) => t(`state.${s}`)}
      />
      <GroupPick value={f.group} onChange={(group) => set({ group })} />
      <Pick
        label={t("run.cause")}
        value={f.cause}
        onChange={(cause) => set({ cause })}
        data={causes.map((c) => ({ value: c, label: t(`cause.${c}`) }))}
        width={130}
      />
      <Pick
        label={t("run.reason")}
        value={f.reason}
        onChange={(reason) => set({ reason })}
        data={allReasons.map((r) => ({ value: r, label: reasonText(t, r) }))}
        width={170}
      />
      {f.job_id && (
        <Chips
          label={t("field.job")}
          values={[f.job_id]}
          value={f.job_id}
          onChange={() => set({ job_id: "" })}
          name={(v) => `${jobName ?? `#${v}`} ×`}
        />
      )}
      {f.instance && (
        <Chips
          label={t("run.instance")}
          values={[f.instance]}
          value={f.instance}
          onChange={() => set({ instance: "" })}
          name={(v) => `${v} ×`}
        />
      )}
      {(f.from || f.to) && (
        <Chips
          label={t("run.fire")}
          values={["x"]}
          value="x"
          onChange={() => set({ from: "", to: "" })}
          name={() => `${f.from} – ${f.to} ×`}
        />
      )}
    </div>
  );
}
