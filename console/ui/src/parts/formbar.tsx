import { Alert, Button, Group, Modal, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useT } from "../i18n";

/** FormBar is the bar at the lower edge of a form. It shows why a save failed, wherever the form is scrolled to. */
export function FormBar({ fault, children }: { fault?: ReactNode; children: ReactNode }) {
  const t = useT();
  return (
    <div className="form-actions">
      {fault && (
        <Alert color="red" variant="light" role="alert" title={t("form.refused")} mb="xs" className="form-fault">
          {fault}
        </Alert>
      )}
      <Group gap="xs">{children}</Group>
    </div>
  );
}

/** AskLeaving asks whether the unsaved changes may be dropped. */
export function AskLeaving({ go, stay }: { go?: () => void; stay: () => void }) {
  const t = useT();
  return (
    <Modal
      opened={go !== undefined}
      onClose={stay}
      title={t("leave.title")}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <Stack gap="sm">
        <Text size="sm">{t("leave.text")}</Text>
        <Group justify="flex-end" gap="xs">
          <Button
            variant="default"
            color="red"
            c="var(--bad)"
            onClick={() => {
              stay();
              go?.();
            }}
          >
            {t("leave.go")}
          </Button>
          <Button onClick={stay} data-autofocus>
            {t("leave.stay")}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
