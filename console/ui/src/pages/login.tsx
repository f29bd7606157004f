import { Alert, Button, Divider, Group, PasswordInput, Stack, Text, TextInput, Title } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";
import { useLocation, useSearch } from "wouter";
import { ApiError, get, post, search } from "../api/client";
import { useLanguage, useT, type Key } from "../i18n";
import { useTitle } from "../lib/hooks";
import { errorText, tooOften } from "../parts/basics";
import { ChangePassword } from "../parts/password";
import { LanguageSwitch, ThemeSwitch } from "../parts/switches";

const refusals = [
  "oidc_denied",
  "oidc_expired",
  "oidc_failed",
  "oidc_no_access",
  "oidc_name",
  "oidc_unavailable",
  "too_many",
];

/** target returns the page to open after the log-in. It is always a path of this console. */
export function target(query: string): string {
  const to = new URLSearchParams(query).get("to") ?? "/";
  return /^\/(?![/\\])/.test(to) && !to.startsWith("/login") ? to : "/";
}

/** MustChange is the only page for a user who must change the password. */
export function MustChange() {
  const t = useT();
  useTitle(t("password.change"));
  const client = useQueryClient();
  const [, navigate] = useLocation();
  return (
    <main className="login">
      <div className="login-form">
        <Group gap="xs" mb="sm">
          <img src="/bell.svg" width={28} height={28} alt="" />
          <Title order={1}>{t("password.change")}</Title>
        </Group>
        <Text size="sm" mb="sm">
          {t("password.must")}
        </Text>
        <ChangePassword onDone={() => void client.invalidateQueries()} />
      </div>
      <Group gap="xs" justify="center" mt="md">
        <LanguageSwitch />
        <ThemeSwitch />
        <Button
          variant="subtle"
          color="gray"
          size="compact-sm"
          onClick={() =>
            void post("/api/v1/auth/logout")
              .catch(() => undefined)
              .then(() => {
                client.clear();
                navigate("/login");
              })
          }
        >
          {t("logout")}
        </Button>
      </Group>
    </main>
  );
}

export function LogIn() {
  const words = useLanguage();
  const t = words.t;
  useTitle(t("login.title"));
  const client = useQueryClient();
  const query = useSearch();
  const [, navigate] = useLocation();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<ApiError>();
  const [busy, setBusy] = useState(false);
  // If the ways to log in cannot be read, the page offers the log-in with a password.
  const methods = useQuery({
    queryKey: ["auth-methods"],
    queryFn: () => get("/api/v1/auth/methods"),
    retry: false,
    staleTime: Infinity,
  });
  const oidc = methods.data?.oidc;
  const withPassword = methods.data?.password ?? true;
  const refusal = new URLSearchParams(query).get("error");

  async function submit(e: FormEvent) {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await post("/api/v1/auth/login", { body: { username, password } });
      client.clear();
      navigate(target(query), { replace: true });
    } catch (e) {
      setError(e as ApiError);
      setBusy(false);
    }
  }

  return (
    <main className="login">
      <form onSubmit={submit} className="login-form">
        <Stack gap="sm">
          <Group gap="xs">
            <img src="/bell.svg" width={28} height={28} alt="" />
            <Title order={1}>Belfry</Title>
          </Group>
          {refusal && !error && (
            <Alert color="red" role="alert" variant="light">
              {refusal === "too_many"
                ? tooOften(words, Number(new URLSearchParams(query).get("wait")) || undefined, "login.too_many")
                : t(refusals.includes(refusal) ? (`login.${refusal}` as Key) : "login.oidc_failed")}
            </Alert>
          )}
          {oidc && (
            <Button
              component="a"
              href={oidc.login + search({ return_to: target(query) })}
              fullWidth
              variant={withPassword ? "default" : "filled"}
            >
              {t("login.oidc", { name: oidc.name })}
            </Button>
          )}
          {oidc && withPassword && <Divider label={t("login.or")} labelPosition="center" />}
          {withPassword && (
            <>
              <TextInput
                label={t("login.user")}
                value={username}
                onChange={(e) => setUsername(e.currentTarget.value)}
                autoComplete="username"
                autoFocus
                required
                withAsterisk={false}
                error={error?.at("username")}
              />
              <PasswordInput
                label={t("login.password")}
                value={password}
                onChange={(e) => setPassword(e.currentTarget.value)}
                autoComplete="current-password"
                required
                withAsterisk={false}
                error={error?.at("password")}
                visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
              />
              {error && !error.problem.errors?.length && (
                <Alert color="red" role="alert" variant="light">
                  {error.status === 401
                    ? t("login.wrong")
                    : error.status === 429
                      ? tooOften(words, error.retryAfter)
                      : errorText(t, error)}
                </Alert>
              )}
              <Button type="submit" loading={busy} fullWidth>
                {t("login.submit")}
              </Button>
            </>
          )}
        </Stack>
      </form>
      <Group gap="xs" justify="center" mt="md">
        <LanguageSwitch />
        <ThemeSwitch />
      </Group>
    </main>
  );
}
