import { Button, Group, Loader, Modal, NumberInput, SimpleGrid, Stack, Text, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useLocation } from "wouter";
import { ApiError, post, type Job } from "../api/client";
import { useT } from "../i18n";
import { dateTime, viewerZone } from "../lib/time";
import { useRefresh } from "./actions";
import { errorText } from "./basics";

const field = (at: number) => dateTime(new Date(at)).slice(0, 16).replace(" ", "T");
const instant = (text: string) => (Number.isNaN(Date.parse(text)) ? "" : new Date(text).toISOString());

/** Backfill runs a job for the fire times of a past range. It lists these fire times before it starts. */
export function Backfill({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const [from, setFrom] = useState(() => field(Date.now() - 86_400_000));
  const [to, setTo] = useState(() => field(Date.now()));
  const [most, setMost] = useState<number | string>(100);
  const typed = { from: instant(from), to: instant(to), max: Number(most) || 1 };
  const key = JSON.stringify(typed);
  const [asked] = useDebouncedValue(key, 250);
  const fires = (body: typeof typed, dry_run: boolean) =>
    post("/api/v1/jobs/{id}/backfill", { path: { id: job.id }, query: { dry_run }, body });
  const preview = useQuery({
    queryKey: ["backfill", job.id, job.version, asked],
    queryFn: () => fires(JSON.parse(asked) as typeof typed, true),
    enabled: typed.from !== "" && typed.to !== "",
    placeholderData: (before) => before,
    retry: false,
    gcTime: 0,
  });
  const start = useMutation({
    mutationFn: () => fires(typed, false),
    onSuccess: () => {
      void refresh("runs", "job-runs");
      onClose();
      navigate(`/runs?job_id=${job.id}&cause=backfill`);
    },
  });
  const error = preview.error ?? start.error;
  const at = (name: string) => (error instanceof ApiError ? error.at(name) : undefined);
  const named = ["from", "to", "max"].some(at);
  const times = preview.error ? [] : (preview.data?.fire_times ?? []);
  const current = asked === key && !preview.isPlaceholderData && !preview.error;
  return (
    <Modal
      opened
      onClose={onClose}
      title={t("backfill.title", { name: job.name })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          if (current && times.length > 0) start.mutate();
        }}
      >
        <Stack gap="sm">
          <Text size="sm">{t("backfill.text")}</Text>
          <SimpleGrid cols={{ base: 1, sm: 2 }} spacing="sm">
            <TextInput
              type="datetime-local"
              label={t("filter.from.in", { zone: viewerZone() })}
              value={from}
              onChange={(e) => setFrom(e.currentTarget.value)}
              error={at("from")}
              data-autofocus
            />
            <TextInput
              type="datetime-local"
              label={t("filter.to.in", { zone: viewerZone() })}
              value={to}
              onChange={(e) => setTo(e.currentTarget.value)}
              error={at("to")}
            />
          </SimpleGrid>
          <NumberInput
            label={t("backfill.max")}
            min={1}
            max={1000}
            value={most}
            onChange={setMost}
            error={at("max")}
            w={160}
          />
          <div aria-live="polite">
            {preview.isPending && preview.isFetching && <Loader size="sm" aria-label={t("loading")} />}
            {!preview.error && preview.data && (
              <Text size="sm" fw={600}>
                {times.length > 0 ? t("backfill.times", { n: times.length }) : t("backfill.none")}
              </Text>
            )}
            {!preview.error && preview.data?.next_from && (
              <Text size="sm" c="var(--warn)">
                {t("backfill.more", { at: dateTime(preview.data.next_from) })}
              </Text>
            )}
          </div>
          {times.length > 0 && (
            <ol className="times backfill-times" tabIndex={0} aria-label={t("missed.when")}>
              {times.map((time) => (
                <li key={time} className="num">
                  {dateTime(time)}
                </li>
              ))}
            </ol>
          )}
          {error && !named && (
            <Text size="sm" c="var(--bad)" role="alert">
              {errorText(t, error)}
            </Text>
          )}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t("cancel")}
            </Button>
            <Button type="submit" disabled={!current || times.length === 0} loading={start.isPending}>
              {t("backfill.go", { n: times.length })}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
