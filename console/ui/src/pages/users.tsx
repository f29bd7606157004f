import {
  ActionIcon,
  Button,
  Group,
  Menu,
  Modal,
  MultiSelect,
  PasswordInput,
  Select,
  Stack,
  Switch,
  Text,
  TextInput,
} from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { useMe } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { errorText, Icon, icons, Instant, PageHead } from "../parts/basics";
import { useGroups } from "../parts/filters";
import { Pages } from "../parts/pages";

type User = Schemas["User"];
const roles = ["viewer", "operator", "admin"] as const;

export default function Users() {
  const t = useT();
  useTitle(t("nav.users"));
  const refresh = useRefresh();
  const [making, setMaking] = useState(false);
  const [editing, setEditing] = useState<User>();
  const [deleting, setDeleting] = useState<User>();
  return (
    <>
      <PageHead title={t("nav.users")}>
        <Button size="xs" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setMaking(true)}>
          {t("user.new")}
        </Button>
      </PageHead>
      <Pages<User> name={["users"]} read={(cursor) => get("/api/v1/users", { query: { cursor, limit: 100 } })}>
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("login.user")}</th>
                <th>{t("user.role")}</th>
                <th className="mid">{t("user.groups")}</th>
                <th className="wide">{t("user.created")}</th>
                <th>
                  <span className="sr-only">{t("actions")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((u) => (
                <Row key={u.id} user={u} edit={() => setEditing(u)} remove={() => setDeleting(u)} />
              ))}
            </tbody>
          </table>
        )}
      </Pages>
      {(making || editing) && (
        <Edit
          user={editing}
          onClose={() => {
            setMaking(false);
            setEditing(undefined);
          }}
        />
      )}
      {deleting && (
        <Confirm
          title={t("user.delete", { name: deleting.username })}
          text={t("user.delete.text")}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/users/{username}", { path: { username: deleting.username } });
            await refresh("users");
          }}
        />
      )}
    </>
  );
}

function Row({ user: u, edit, remove }: { user: User; edit: () => void; remove: () => void }) {
  const t = useT();
  const me = useMe();
  const refresh = useRefresh();
  const [leaving, setLeaving] = useState(false);
  const m = useMutation({
    mutationFn: () =>
      call("patch", "/api/v1/users/{username}", { path: { username: u.username }, body: { disabled: !u.disabled } }),
    onError: useComplain(),
    onSettled: () => refresh("users"),
  });
  return (
    <tr>
      <td className="grow">
        <div className="clamp" title={u.username}>
          {u.username}
          {u.disabled && <span className="tag">{t("user.disabled")}</span>}
          {u.kind === "oidc" && <span className="tag">{t("account.kind.oidc")}</span>}
          {u.must_change_password && <span className="tag">{t("user.must")}</span>}
        </div>
      </td>
      <td>{t(`role.${u.role}`)}</td>
      <td className="mid">
        <div className="clamp" title={u.groups.join(", ")}>
          {u.role === "admin" ? t("user.all") : u.groups.join(", ") || t("none")}
        </div>
      </td>
      <td className="wide num">
        <Instant at={u.created_at} />
      </td>
      <td className="row-actions">
        <Group gap={2} justify="flex-end" wrap="nowrap">
          {u.kind === "local" && (
            <Button size="compact-xs" variant="subtle" onClick={edit}>
              {t("edit")}
            </Button>
          )}
          {u.username !== me.username && (
            <Menu position="bottom-end">
              <Menu.Target>
                <ActionIcon
                  variant="subtle"
                  color="gray"
                  size="sm"
                  loading={m.isPending}
                  aria-label={t("more", { name: u.username })}
                >
                  ⋯
                </ActionIcon>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Item onClick={() => setLeaving(true)}>{t("user.logout")}</Menu.Item>
                <Menu.Item onClick={() => m.mutate()}>{t(u.disabled ? "user.enable" : "user.disable")}</Menu.Item>
                <Menu.Item color="red" onClick={remove}>
                  {t("delete")}
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          )}
        </Group>
        {leaving && (
          <Confirm
            title={t("user.logout.title", { name: u.username })}
            text={t("user.logout.text")}
            action={t("user.logout")}
            onClose={() => setLeaving(false)}
            onConfirm={() => post("/api/v1/users/{username}/logout", { path: { username: u.username } })}
          />
        )}
      </td>
    </tr>
  );
}

function Edit({ user, onClose }: { user?: User; onClose: () => void }) {
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
