import { Button, Group, Text } from "@mantine/core";
import { useState } from "react";
import type { Run } from "../api/client";
import { useT } from "../i18n";
import { bulkFilter, type BulkFilter, type RunAction } from "../lib/bulk";
import { final } from "../lib/states";
import { RunBulk } from "./runbulk";

const actions = ["kill", "retry"] as const;

/** RunBulkBar offers to kill or retry the selected runs of a list, or all that match its filters f. */
export function RunBulkBar({
  f,
  runs,
  chosen,
  clear,
}: {
  f: Record<string, string>;
  runs: Run[];
  chosen: ReadonlySet<string>;
  clear: () => void;
}) {
  const t = useT();
  const [asking, setAsking] = useState<{ action: RunAction; filter: BulkFilter }>();
  const filterOf = (action: RunAction): BulkFilter | undefined => {
    if (chosen.size === 0) return runs.length > 0 ? bulkFilter(action, f, new Date()) : undefined;
    const ids = runs.filter((r) => chosen.has(r.id) && final(r.state) === (action === "retry")).map((r) => r.id);
    return ids.length > 0 ? { ids } : undefined;
  };
  const offered = actions.filter((action) => filterOf(action));
  return (
    <>
      {(chosen.size > 0 || offered.length > 0) && (
        <Group gap="xs" mb="xs" className="bulk-bar" role="group" aria-label={t("actions")}>
          <Text size="sm">{chosen.size ? t("bulk.chosen", { n: chosen.size }) : t("bulk.fitting")}</Text>
          {offered.map((action) => (
            <Button
              key={action}
              size="compact-sm"
              variant={action === "kill" ? "light" : "default"}
              color={action === "kill" ? "red" : undefined}
              onClick={() => {
                const filter = filterOf(action);
                if (filter) setAsking({ action, filter });
              }}
            >
              {t(`run.${action}`)}
            </Button>
          ))}
          {chosen.size > 0 && (
            <Button size="compact-sm" variant="subtle" color="gray" onClick={clear}>
              {t("clear")}
            </Button>
          )}
        </Group>
      )}
      {asking && <RunBulk {...asking} onClose={() => setAsking(undefined)} />}
    </>
  );
}
