import { Select } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get } from "../api/client";
import { findJobs } from "../lib/findjobs";

/** JobPick selects a job by a search. The job without cannot be selected. */
export function JobPick({
  value,
  onChange,
  label,
  hideLabel,
  without,
  error,
  required,
  compact,
}: {
  value?: number;
  onChange: (id: number | undefined) => void;
  label: string;
  hideLabel?: boolean;
  without?: number;
  error?: string;
  required?: boolean;
  compact?: boolean;
}) {
  const [text, setText] = useState("");
  const [opened, setOpened] = useState(false);
  const chosen = useQuery({
    queryKey: ["job", value, "pick"],
    queryFn: () => get("/api/v1/jobs/{id}", { path: { id: value ?? 0 } }),
    enabled: value !== undefined,
    staleTime: 60_000,
    retry: false,
  });
  const own =
    chosen.data && value !== undefined
      ? { value: String(value), label: `${chosen.data.group}/${chosen.data.name}` }
      : value !== undefined
        ? { value: String(value), label: `#${value}` }
        : undefined;
  // At first the field has the selected job's name, which is not a search.
  const [q] = useDebouncedValue(text === own?.label ? "" : text.replace(/^[^/]*\//, ""), 200);
  const found = useQuery({
    queryKey: ["palette", "pick", q],
    queryFn: ({ signal }) => findJobs({ q, limit: 30 }, signal),
    placeholderData: keepPreviousData,
    enabled: opened,
  });
  const options = (found.data ?? [])
    .filter((j) => j.id !== without && j.id !== value)
    .map((j) => ({ value: String(j.id), label: `${j.group}/${j.name}` }));
  return (
    <Select
      label={hideLabel ? undefined : label}
      aria-label={hideLabel ? label : undefined}
      placeholder={label}
      searchable
      required={required}
      data={own ? [own, ...options] : options}
      value={own?.value ?? null}
      error={error}
      onSearchChange={setText}
      onDropdownOpen={() => setOpened(true)}
      size={compact ? "xs" : undefined}
      w={compact ? 190 : undefined}
      filter={({ options }) => options}
      onChange={(v) => onChange(v ? Number(v) : undefined)}
      maxDropdownHeight={280}
    />
  );
}
