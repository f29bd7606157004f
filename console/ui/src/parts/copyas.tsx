import { Modal, SegmentedControl, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Job } from "../api/client";
import { useT } from "../i18n";
import { draftOf, tidy } from "../lib/draft";
import { applyCommand, putCommand } from "../lib/jobcommands";
import { ErrorNote, Snippet } from "./basics";

const forms = ["yaml", "cli", "curl"] as const;
type Form = (typeof forms)[number];

/** CopyAs shows a job as YAML, as a command of the command line, or as a request of curl. Secrets are masked. */
export function CopyAs({ job, onClose }: { job: Job; onClose: () => void }) {
  const t = useT();
  const [as, setAs] = useState<Form>("yaml");
  const draft = tidy(draftOf(job, false));
  const yaml = useQuery({
    queryKey: ["job", job.id, "yaml", job.version],
    queryFn: async () => (await import("../lib/jobyaml")).toYaml(draft),
    staleTime: Infinity,
  });
  const code: Record<Form, string> = {
    yaml: yaml.data ?? "",
    cli: applyCommand(yaml.data ?? "", location.origin),
    curl: putCommand(job.id, draft, location.origin),
  };
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={t("job.copyas.title", { name: job.name })}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <Stack gap="sm">
        <SegmentedControl
          size="xs"
          w="fit-content"
          aria-label={t("job.copyas")}
          value={as}
          onChange={(v) => setAs(v as Form)}
          data={forms.map((f) => ({ value: f, label: t(`job.copyas.${f}`) }))}
        />
        {yaml.error && <ErrorNote error={yaml.error} />}
        <Snippet code={code[as]} />
        <Text size="xs" c="dimmed">
          {t("job.copyas.help")}
        </Text>
      </Stack>
    </Modal>
  );
}
