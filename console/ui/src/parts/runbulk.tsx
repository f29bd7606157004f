import { Button, Group, Loader, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { post } from "../api/client";
import { useT } from "../i18n";
import { runCount, typedAbove, type BulkFilter, type RunAction } from "../lib/bulk";
import { useRefresh } from "./actions";
import { errorText } from "./basics";
import { BulkJobs } from "./bulkparts";

/**
 * RunBulk says how many runs of which jobs an action would change, and starts it. The server does the work, so the dialog then opens the
 * action's page. If there are many runs, the user types their number.
 */
export function RunBulk({ action, filter, onClose }: { action: RunAction; filter: BulkFilter; onClose: () => void }) {
  const t = useT();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const [typed, setTyped] = useState("");
  const preview = useQuery({
    queryKey: ["bulk-preview", action, filter],
    queryFn: () => post("/api/v1/runs/bulk", { query: { dry_run: true }, body: { action, filter } }),
    gcTime: 0,
    staleTime: Infinity,
    refetchOnWindowFocus: false,
    retry: false,
  });
  const start = useMutation({
    mutationFn: () => post("/api/v1/runs/bulk", { body: { action, filter } }),
    onSuccess: (a) => {
      void refresh("bulk", "runs");
      onClose();
      if (a.id) navigate(`/bulk/${a.id}`);
    },
  });
  const p = preview.data;
  const n = p ? runCount(p) : "";
  const many = p !== undefined && (p.matched > typedAbove || p.at_least === true);
  const sure = p !== undefined && p.matched > 0 && (!many || typed.trim() === String(p.matched));
  return (
    <Modal
      opened
      onClose={onClose}
      title={p ? t(`bulk.${action}`, { n }) : t("bulk.counting")}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (sure) start.mutate();
        }}
      >
        <Stack gap="sm">
          {!p && !preview.error && <Loader size="sm" aria-label={t("bulk.counting")} />}
          {p && p.matched === 0 && <Text size="sm">{t(`bulk.${action}.zero`)}</Text>}
          {p && p.matched > 0 && (
            <>
              <BulkJobs jobs={p.jobs ?? []} most={8} />
              <Text size="sm">{t(`bulk.${action}.text`)}</Text>
            </>
          )}
          {many && (
            <TextInput
              label={t("bulk.type", { n: p.matched })}
              value={typed}
              onChange={(e) => setTyped(e.currentTarget.value)}
              inputMode="numeric"
              autoComplete="off"
              autoFocus
            />
          )}
          {(preview.error ?? start.error) && (
            <Text size="sm" c="var(--bad)" role="alert">
              {errorText(t, preview.error ?? start.error)}
            </Text>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose} data-autofocus>
              {t("cancel")}
            </Button>
            <Button
              type="submit"
              color={action === "kill" ? "red" : undefined}
              disabled={!sure}
              loading={start.isPending}
            >
              {t(`bulk.${action}.go`, { n })}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
