import { Button, Modal, NumberInput, Progress, Stack, Text } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, get, type Group, type Schemas } from "../api/client";
import { useT, type Key } from "../i18n";
import { amount } from "../lib/amount";
import { useRefresh } from "./actions";
import { ErrorNote, errorText } from "./basics";

type Usage = Schemas["GroupUsage"];
type What = Exclude<keyof Usage, "$schema">;
type Limits = Schemas["GroupLimits"];
type Limit = keyof Limits;

const shown: What[] = ["jobs", "live_runs", "fires_per_minute", "log_bytes_today", "script_versions", "instances"];
const limits: Limit[] = [
  "max_jobs",
  "max_live_runs",
  "max_fires_per_minute",
  "max_log_bytes_per_day",
  "max_script_versions",
  "max_instances",
  "max_connections",
];

// From this share of a limit on, the bar is marked.
const nearly = 0.8;

export const useGroupUsage = (name: string) =>
  useQuery({
    queryKey: ["usage", name],
    queryFn: () => get("/api/v1/groups/{name}/usage", { path: { name } }),
  });

/** GroupUsage shows how much of its limits a group uses. The usage may exceed a limit that was lowered. */
export function GroupUsage({ name, usage: query }: { name: string; usage: ReturnType<typeof useGroupUsage> }) {
  const t = useT();
  if (!query.data) return query.error ? <ErrorNote error={query.error} retry={() => void query.refetch()} /> : null;
  const usage = query.data;
  return (
    <dl className="usage" aria-label={t("limits.title", { name })}>
      {shown.map((what) => {
        const { used, limit } = usage[what];
        const share = used / limit;
        const color = share >= 1 ? "red" : share >= nearly ? "yellow" : undefined;
        const bytes = what === "log_bytes_today";
        return (
          <div key={what}>
            <dt>{t(`usage.${what}` as Key)}</dt>
            <dd>
              <span className={share >= 1 ? "bad" : undefined}>{amount(used, bytes)}</span>{" "}
              <span className="faint">/ {amount(limit, bytes)}</span>
              {share > 1 && <span className="bad"> · {t("usage.beyond")}</span>}
              <Progress
                size={4}
                mt={2}
                value={Math.min(100, 100 * share)}
                color={color}
                aria-label={t("usage.share", { what: t(`usage.${what}` as Key), n: Math.round(100 * share) })}
              />
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

/** GroupLimits is the form in which administrators change a group's limits. */
export function GroupLimits({ group, onClose }: { group: Group; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const [values, setValues] = useState<Record<Limit, number | string>>({ ...group.limits });
  const changed = limits.filter((l) => values[l] !== group.limits[l]);
  const m = useMutation({
    mutationFn: () =>
      call("patch", "/api/v1/groups/{name}", {
        path: { name: group.name },
        body: { limits: Object.fromEntries(changed.map((l) => [l, Number(values[l])])) },
      }),
    onSuccess: async () => {
      await refresh("groups", "usage");
      onClose();
    },
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  return (
    <Modal
      opened
      onClose={onClose}
      title={t("limits.title", { name: group.name })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <Text size="sm">{t("limits.text")}</Text>
          {limits.map((l) => (
            <NumberInput
              key={l}
              label={t(`limits.${l}` as Key)}
              description={l === "max_log_bytes_per_day" ? amount(Number(values[l]), true) : undefined}
              value={values[l]}
              onChange={(v) => setValues({ ...values, [l]: v })}
              min={1}
              allowDecimal={false}
              allowNegative={false}
              hideControls
              thousandSeparator=","
              error={error?.at(`limits.${l}`)}
              required
            />
          ))}
          {m.error && !error?.problem.errors?.length && (
            <Text c="var(--bad)" size="sm" role="alert">
              {errorText(t, m.error)}
            </Text>
          )}
          <Button type="submit" loading={m.isPending} disabled={changed.length === 0}>
            {t("save")}
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}
