import { CloseButton, Select, TextInput } from "@mantine/core";
import { useMediaQuery } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";
import { get } from "../api/client";
import { useT } from "../i18n";
import { useTyped } from "../lib/hooks";
import { Icon, icons } from "./icons";

/** SearchField is a search field. The key / moves the focus to it. */
export function SearchField({
  value,
  onChange,
  label,
}: {
  value: string;
  onChange: (q: string) => void;
  label: string;
}) {
  const t = useT();
  const [text, setText] = useTyped(value, onChange);
  return (
    <TextInput
      className="filter-search"
      data-search
      size="xs"
      leftSection={<Icon d={icons.search} size={14} />}
      placeholder={label}
      aria-label={label}
      value={text}
      onChange={(e) => setText(e.currentTarget.value)}
      onKeyDown={(e) => {
        if (e.key === "Escape") {
          setText("");
          // Without a focused element, useFocusKept would give the focus back to this field.
          document.getElementById("main")?.focus({ preventScroll: true });
        }
      }}
      rightSection={text ? <CloseButton size="xs" aria-label={t("clear")} onClick={() => setText("")} /> : null}
    />
  );
}

/** Chips select one or several of a few values. Each value is a toggle button. */
export function Chips<V extends string>({
  label,
  values,
  value,
  onChange,
  name,
}: {
  label: string;
  values: readonly V[];
  value: string;
  onChange: (v: string) => void;
  name: (v: V) => string;
}) {
  const chosen = value ? value.split(",") : [];
  return (
    <div className="chips" role="group" aria-label={label}>
      {values.map((v) => {
        const on = chosen.includes(v);
        return (
          <button
            key={v}
            type="button"
            className="chip"
            aria-pressed={on}
            onClick={() => onChange((on ? chosen.filter((c) => c !== v) : [...chosen, v]).join(","))}
          >
            {name(v)}
          </button>
        );
      })}
    </div>
  );
}

/** Pick selects one value or none. */
export function Pick({
  label,
  data,
  value,
  onChange,
  width = 150,
}: {
  label: string;
  data: { value: string; label: string }[] | string[];
  value: string;
  onChange: (v: string) => void;
  width?: number;
}) {
  return (
    <Select
      size="xs"
      w={width}
      placeholder={label}
      aria-label={label}
      data={data}
      value={value || null}
      onChange={(v) => onChange(v ?? "")}
      clearable
      searchable
      checkIconPosition="right"
    />
  );
}

/**
 * useMore returns whether the filters are shown that a phone shows on demand, and on a phone the button that shows or hides them. Until it is used, they
 * are shown if one of them is set.
 */
export function useMore(isSet: boolean): { more: boolean; button: ReactNode } {
  const t = useT();
  const phone = useMediaQuery("(max-width: 600px)", undefined, { getInitialValueInEffect: false });
  const [chosen, choose] = useState<boolean | null>(null);
  const open = chosen ?? isSet;
  if (!phone) return { more: true, button: null };
  const button = (
    <button type="button" className="chip" aria-expanded={open} onClick={() => choose(!open)}>
      {t(open ? "filter.less" : "filter.more")}
    </button>
  );
  return { more: open, button };
}

export function useGroups() {
  return useQuery({
    queryKey: ["groups"],
    queryFn: () => get("/api/v1/groups", { query: { limit: 500 } }),
    staleTime: 10_000,
  });
}

export function GroupPick({ value, onChange }: { value: string; onChange: (v: string) => void }) {
  const t = useT();
  const groups = useGroups();
  return (
    <Pick
      label={t("field.group")}
      data={groups.data?.items.map((g) => g.name) ?? (value ? [value] : [])}
      value={value}
      onChange={onChange}
    />
  );
}
