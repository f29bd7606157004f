import { Button, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError } from "../api/client";
import { useT } from "../i18n";
import { errorText } from "./basics";

/** Words are what the user entered: the reason or note, and the optional end. */
export interface Words {
  reason: string;
  until?: string;
}

/** ReasonDialog asks for a reason and an optional end, and saves both. field is the name of the reason in the request's body. */
export function ReasonDialog({
  title,
  text,
  label,
  field,
  required = false,
  action,
  save,
  onClose,
}: {
  title: string;
  text: string;
  label: string;
  field: "reason" | "note";
  required?: boolean;
  action: string;
  save: (words: Words) => Promise<unknown>;
  onClose: () => void;
}) {
  const t = useT();
  const [reason, setReason] = useState("");
  const [until, setUntil] = useState("");
  const m = useMutation({
    mutationFn: () => save({ reason, ...(until ? { until: new Date(until).toISOString() } : {}) }),
    onSuccess: onClose,
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ "aria-label": t("close") }}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <Text size="sm">{text}</Text>
          <TextInput
            label={label}
            value={reason}
            onChange={(e) => setReason(e.currentTarget.value)}
            error={error?.at(field)}
            data-autofocus
            required={required}
          />
          <TextInput
            label={t("group.until")}
            type="datetime-local"
            value={until}
            onChange={(e) => setUntil(e.currentTarget.value)}
            error={error?.at("until")}
          />
          {m.error && !error?.problem.errors?.length && (
            <Text c="var(--bad)" size="sm" role="alert">
              {errorText(t, m.error)}
            </Text>
          )}
          <Button type="submit" loading={m.isPending}>
            {action}
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}
