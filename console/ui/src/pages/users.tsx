import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { useMe } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { Instant, PageHead } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { ListTable } from "../parts/listtable";
import { Pages } from "../parts/pages";
import { UserForm } from "../parts/userform";

type User = Schemas["User"];

export default function Users() {
  const t = useT();
  useTitle(t("nav.users"));
  const me = useMe();
  const refresh = useRefresh();
  const [form, setForm] = useState<User | "new">();
  const [leaving, setLeaving] = useState<User>();
  const toggle = useMutation({
    mutationFn: (u: User) =>
      call("patch", "/api/v1/users/{username}", { path: { username: u.username }, body: { disabled: !u.disabled } }),
    onError: useComplain(),
    onSettled: () => refresh("users"),
  });
  return (
    <>
      <PageHead title={t("nav.users")}>
        <Button size="xs" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setForm("new")}>
          {t("user.new")}
        </Button>
      </PageHead>
      <Pages<User> name={["users"]} read={(cursor) => get("/api/v1/users", { query: { cursor, limit: 100 } })}>
        {(items) => (
          <ListTable
            items={items}
            id={(u) => u.id}
            name={(u) => u.username}
            columns={[
              { head: t("login.user"), className: "grow", cell: (u) => <Name user={u} /> },
              { head: t("user.role"), cell: (u) => t(`role.${u.role}`) },
              {
                head: t("user.groups"),
                className: "mid",
                cell: (u) => (
                  <div className="clamp" title={u.groups.join(", ")}>
                    {u.role === "admin" ? t("user.all") : u.groups.join(", ") || t("none")}
                  </div>
                ),
              },
              { head: t("user.created"), className: "wide num", cell: (u) => <Instant at={u.created_at} /> },
            ]}
            beside={(u) =>
              u.kind === "local" && (
                <Button size="compact-xs" variant="subtle" onClick={() => setForm(u)}>
                  {t("edit")}
                </Button>
              )
            }
            actions={(u) =>
              u.username === me.username
                ? []
                : [
                    { label: t("user.logout"), run: () => setLeaving(u) },
                    { label: t(u.disabled ? "user.enable" : "user.disable"), run: () => toggle.mutate(u) },
                  ]
            }
            removal={{
              title: (u) => t("user.delete", { name: u.username }),
              text: t("user.delete.text"),
              run: (u) => call("delete", "/api/v1/users/{username}", { path: { username: u.username } }),
              refresh: "users",
              may: (u) => u.username !== me.username,
            }}
          />
        )}
      </Pages>
      {form && <UserForm user={form === "new" ? undefined : form} onClose={() => setForm(undefined)} />}
      {leaving && (
        <Confirm
          title={t("user.logout.title", { name: leaving.username })}
          text={t("user.logout.text")}
          action={t("user.logout")}
          onClose={() => setLeaving(undefined)}
          onConfirm={() => post("/api/v1/users/{username}/logout", { path: { username: leaving.username } })}
        />
      )}
    </>
  );
}

/** Name is a user's name with marks for what is special about the account. */
function Name({ user: u }: { user: User }) {
  const t = useT();
  return (
    <div className="clamp" title={u.username}>
      {u.username}
      {u.disabled && <span className="tag">{t("user.disabled")}</span>}
      {u.kind === "oidc" && <span className="tag">{t("account.kind.oidc")}</span>}
      {u.must_change_password && <span className="tag">{t("user.must")}</span>}
    </div>
  );
}
