import { Button, Group, Modal, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { get, type JobInput } from "../api/client";
import { useT } from "../i18n";
import { differences } from "../lib/changes";
import { draftOf } from "../lib/draft";
import { ChangeList } from "./changelist";

/** VersionConflict says that the job was saved elsewhere meanwhile. The user loads the saved version, or keeps the draft. */
export function VersionConflict({
  id,
  draft,
  message,
  onLoad,
  onKeep,
}: {
  id: number;
  draft: JobInput;
  message: string;
  onLoad: (saved: JobInput) => void;
  onKeep: (version: number) => void;
}) {
  const t = useT();
  const [shown, setShown] = useState(false);
  const saved = useQuery({
    queryKey: ["job", id, "saved"],
    queryFn: () => get("/api/v1/jobs/{id}", { path: { id } }),
    gcTime: 0,
    staleTime: 0,
  });
  const theirs = saved.data && draftOf(saved.data, false);
  const stale = theirs && saved.data.version !== draft.version;
  if (!stale) return <>{message}</>; // the name is taken
  const load = () => {
    setShown(false);
    onLoad(theirs);
  };
  return (
    <>
      <Text size="sm">{t("conflict.text", { n: saved.data.version })}</Text>
      <Group gap="xs" mt={6}>
        <Button size="compact-sm" variant="default" onClick={() => setShown(true)}>
          {t("conflict.diff")}
        </Button>
        <Button size="compact-sm" variant="default" onClick={load}>
          {t("conflict.reload")}
        </Button>
      </Group>
      <Modal
        opened={shown}
        onClose={() => setShown(false)}
        size="xl"
        title={t("conflict.title")}
        closeButtonProps={{ "aria-label": t("close") }}
      >
        <Text size="sm" mb="xs">
          {t("conflict.legend")}
        </Text>
        <ChangeList of={differences(theirs, draft)} />
        <Group justify="flex-end" gap="xs" mt="md">
          <Button variant="default" onClick={load}>
            {t("conflict.reload")}
          </Button>
          <Button
            onClick={() => {
              setShown(false);
              onKeep(saved.data.version);
            }}
          >
            {t("conflict.keep")}
          </Button>
        </Group>
      </Modal>
    </>
  );
}
