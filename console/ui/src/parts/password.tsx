import { Button, PasswordInput, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, post } from "../api/client";
import { useLanguage } from "../i18n";
import { useMe } from "../lib/me";
import { errorText, tooOften } from "./basics";

/** ChangePassword changes the user's own password. This ends the user's other log-ins. */
export function ChangePassword({ onDone }: { onDone: () => void }) {
  const words = useLanguage();
  const t = words.t;
  const me = useMe();
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const [again, setAgain] = useState("");
  const [differ, setDiffer] = useState(false);
  const m = useMutation({
    mutationFn: () => post("/api/v1/auth/password", { body: { current_password: current, new_password: next } }),
    onSuccess: () => {
      setCurrent("");
      setNext("");
      setAgain("");
      onDone();
    },
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  const toggle = {
    visibilityToggleButtonProps: { "aria-label": t("login.show") },
    withAsterisk: false,
    required: true,
  };
  return (
    <form
      noValidate
      onSubmit={(e) => {
        e.preventDefault();
        setDiffer(next !== again);
        if (next === again) m.mutate();
      }}
    >
      <Stack gap="sm" maw={340}>
        <input type="text" name="username" autoComplete="username" value={me.username} readOnly hidden />
        <PasswordInput
          label={t("password.current")}
          value={current}
          onChange={(e) => setCurrent(e.currentTarget.value)}
          error={error?.at("current_password")}
          autoComplete="current-password"
          {...toggle}
        />
        <PasswordInput
          label={t("password.new")}
          description={t("user.rule")}
          value={next}
          onChange={(e) => setNext(e.currentTarget.value)}
          error={error?.at("new_password")}
          autoComplete="new-password"
          {...toggle}
        />
        <PasswordInput
          label={t("password.again")}
          value={again}
          onChange={(e) => setAgain(e.currentTarget.value)}
          error={differ && next !== again ? t("password.differ") : undefined}
          autoComplete="new-password"
          {...toggle}
        />
        {m.error && !error?.problem.errors?.length && (
          <Text c="var(--bad)" size="sm" role="alert">
            {error?.status === 429 ? tooOften(words, error.retryAfter) : errorText(t, m.error)}
          </Text>
        )}
        {m.isSuccess && (
          <Text size="sm" c="var(--good)" role="status">
            {t("password.done")}
          </Text>
        )}
        <Button type="submit" loading={m.isPending} w="fit-content">
          {t("password.change")}
        </Button>
      </Stack>
    </form>
  );
}
