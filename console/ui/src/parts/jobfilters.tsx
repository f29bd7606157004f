import { Anchor } from "@mantine/core";
import { useT } from "../i18n";
import { Chips, GroupPick, Pick, SearchField, useMore } from "./filters";
import { jobOrders } from "./sorthead";

export const jobFilters = ["q", "group", "tag", "enabled", "kind", "calendar", "health"] as const;
/** jobQuery names what the address of the list contains: the filters, the order, and whether jobs or groups are shown. */
export const jobQuery = [...jobFilters, "sort", "view"] as const;
type Filters = Record<(typeof jobQuery)[number], string>;
type Set = (change: Partial<Filters>) => void;
const kinds = ["none", "cron", "fixed_rate", "fixed_delay", "once"] as const;

/** JobFilters are the filters of the list of jobs. clear is set if a filter is. On phones, most of them open on demand. */
export function JobFilters({ f, set, tags, clear }: { f: Filters; set: Set; tags: string[]; clear?: () => void }) {
  const t = useT();
  const { more, button } = useMore(Boolean(f.group || f.kind || f.sort || f.enabled || f.tag || f.calendar));
  return (
    <div className="filters">
      <SearchField value={f.q} onChange={(q) => set({ q })} label={t("jobs.search")} />
      {more && <Picks f={f} set={set} />}
      <Chips
        label={t("health.head")}
        values={["failing", "ok", "unknown"] as const}
        value={f.health}
        onChange={(v) => set({ health: v.split(",").at(-1) ?? "" })}
        name={(v) => t(`health.${v}`)}
      />
      {button}
      {more && <MoreChips f={f} set={set} tags={tags} />}
      {clear && (
        <Anchor component="button" type="button" size="xs" onClick={clear}>
          {t("clear.filters")}
        </Anchor>
      )}
    </div>
  );
}

/** Picks are the filters with many values, and the order. */
function Picks({ f, set }: { f: Filters; set: Set }) {
  const t = useT();
  return (
    <>
      <GroupPick value={f.group} onChange={(group) => set({ group })} />
      <Pick
        label={t("field.schedule")}
        value={f.kind}
        onChange={(kind) => set({ kind })}
        data={kinds.map((k) => ({ value: k, label: t(`kind.${k}`) }))}
      />
      <Pick
        label={t("jobs.sort")}
        value={f.sort}
        onChange={(sort) => set({ sort })}
        data={jobOrders.map((by) => ({ value: by, label: t(`jobs.sort.${by}`) }))}
        width={190}
      />
    </>
  );
}

/** MoreChips are the chips behind those of the health. */
function MoreChips({ f, set, tags }: { f: Filters; set: Set; tags: string[] }) {
  const t = useT();
  return (
    <>
      <Chips
        label={t("jobs.enabled")}
        values={["true", "false"] as const}
        value={f.enabled}
        onChange={(v) => set({ enabled: v.split(",").at(-1) ?? "" })}
        name={(v) => t(v === "true" ? "job.enabled" : "job.disabled")}
      />
      {tags.length > 0 && (
        <Chips
          label={t("field.tags")}
          values={tags}
          value={f.tag}
          onChange={(v) => set({ tag: v.split(",").at(-1) ?? "" })}
          name={(v) => `#${v}`}
        />
      )}
      {f.calendar && (
        <Chips
          label={t("field.calendar")}
          values={[f.calendar]}
          value={f.calendar}
          onChange={() => set({ calendar: "" })}
          name={(v) => `${t("jobs.calendar", { name: v })} ×`}
        />
      )}
    </>
  );
}
