import { Button, Modal, MultiSelect, PasswordInput, Select, Stack, Switch, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useMe } from "../lib/me";
import { useRefresh } from "./actions";
import { errorText } from "./basics";
import { useGroups } from "./filters";

type User = Schemas["User"];
const roles = ["viewer", "operator", "admin"] as const;

/** UserForm creates a user, or changes one: role, groups and password. */
export function UserForm({ user, onClose }: { user?: User; onClose: () => void }) {
  const t = useT();
  const refresh = useRefresh();
  const me = useMe();
  const groups = useGroups();
  const [username, setUsername] = useState(user?.username ?? "");
  const [password, setPassword] = useState("");
  const [must, setMust] = useState(true);
  const [role, setRole] = useState<User["role"]>(user?.role ?? "operator");
  const [only, setOnly] = useState(user?.groups ?? []);
  const m = useMutation({
    mutationFn: () =>
      user
        ? call("patch", "/api/v1/users/{username}", {
            path: { username: user.username },
            body: {
              role,
              groups: role === "admin" ? [] : only,
              ...(password ? { password, must_change_password: must && user.username !== me.username } : {}),
            },
          })
        : post("/api/v1/users", {
            body: { username, password, role, groups: role === "admin" ? [] : only, must_change_password: must },
          }),
    onSuccess: async () => {
      await refresh("users");
      onClose();
    },
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  const others = error?.elsewhere(["username", "password", "role", "groups"]) ?? [];
  return (
    <Modal
      opened
      onClose={onClose}
      title={user ? user.username : t("user.new")}
      closeButtonProps={{ "aria-label": t("close") }}
    >
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          {!user && (
            <TextInput
              label={t("login.user")}
              value={username}
              onChange={(e) => setUsername(e.currentTarget.value)}
              error={error?.at("username")}
              required
              autoComplete="off"
              data-autofocus
            />
          )}
          <PasswordInput
            label={t("login.password")}
            description={t("user.rule")}
            value={password}
            onChange={(e) => setPassword(e.currentTarget.value)}
            error={error?.at("password")}
            required={!user}
            autoComplete="new-password"
            visibilityToggleButtonProps={{ "aria-label": t("login.show") }}
          />
          {(!user || (password !== "" && user.username !== me.username)) && (
            <Switch
              size="sm"
              label={t("user.mustchange")}
              checked={must}
              onChange={(e) => setMust(e.currentTarget.checked)}
            />
          )}
          <Select
            label={t("user.role")}
            data={roles.map((r) => ({ value: r, label: t(`role.${r}`) }))}
            value={role}
            allowDeselect={false}
            onChange={(r) => setRole(r as User["role"])}
            error={error?.at("role")}
          />
          {role !== "admin" && (
            <MultiSelect
              label={t("user.groups")}
              data={groups.data?.items.map((g) => g.name) ?? only}
              value={only}
              onChange={setOnly}
              error={error?.at("groups")}
              searchable
            />
          )}
          {m.error && (!error?.problem.errors?.length || others.length > 0) && (
            <Text c="var(--bad)" size="sm" role="alert">
              {others.join("; ") || errorText(t, m.error)}
            </Text>
          )}
          <Button type="submit" loading={m.isPending}>
            {t("save")}
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}
