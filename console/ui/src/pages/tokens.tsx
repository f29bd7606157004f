import { Button, Modal, MultiSelect, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { ApiError, call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { useMe } from "../lib/me";
import { useRefresh } from "../parts/actions";
import { Ago, Empty, errorText, Instant, PageHead, Snippet } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { useGroups } from "../parts/filters";
import { ListTable } from "../parts/listtable";
import { Pages } from "../parts/pages";
import { triggerCommand } from "../parts/snippets";

export default function Tokens() {
  const t = useT();
  useTitle(t("nav.tokens"));
  const [making, setMaking] = useState(false);
  return (
    <>
      <PageHead title={t("nav.tokens")}>
        <Button size="xs" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setMaking(true)}>
          {t("token.new")}
        </Button>
      </PageHead>
      <Pages<Schemas["Token"]>
        name={["tokens"]}
        read={(cursor) => get("/api/v1/tokens", { query: { cursor, limit: 100 } })}
        empty={
          <Empty title={t("list.none")}>
            <Text size="sm">{t("token.teach")}</Text>
            <Snippet code={triggerCommand()} />
          </Empty>
        }
      >
        {(items) => (
          <ListTable
            items={items}
            id={(k) => k.id}
            name={(k) => k.name}
            columns={[
              {
                head: t("field.name"),
                className: "grow",
                cell: (k) => (
                  <div className="clamp" title={k.name}>
                    {k.name} <span className="faint">{k.user}</span>
                  </div>
                ),
              },
              {
                head: t("user.role"),
                cell: (k) => (k.scope === "events" ? t("token.scope.events") : t(`role.${k.role}`)),
              },
              {
                head: t("user.groups"),
                className: "mid",
                cell: (k) => (
                  <div className="clamp" title={k.groups.join(", ")}>
                    {k.role === "admin" ? t("user.all") : k.groups.join(", ") || t("none")}
                  </div>
                ),
              },
              {
                head: t("token.used"),
                className: "mid",
                cell: (k) => (k.last_used_at ? <Ago at={k.last_used_at} /> : t("token.never")),
              },
              {
                head: t("token.expires"),
                className: "num",
                cell: (k) => (k.expires_at ? <Instant at={k.expires_at} /> : t("token.never")),
              },
            ]}
            removal={{
              title: (k) => t("token.delete", { name: k.name }),
              text: t("token.delete.text"),
              run: (k) => call("delete", "/api/v1/tokens/{id}", { path: { id: k.id } }),
              refresh: "tokens",
            }}
          />
        )}
      </Pages>
      {making && <NewToken onClose={() => setMaking(false)} />}
    </>
  );
}

const ranks = ["viewer", "operator", "admin"] as const;

function NewToken({ onClose }: { onClose: () => void }) {
  const t = useT();
  const me = useMe();
  const refresh = useRefresh();
  const [name, setName] = useState("");
  const [role, setRole] = useState(me.role);
  const groups = useGroups();
  const [only, setOnly] = useState(me.groups);
  const [scope, setScope] = useState<"" | "events">("");
  const [expires, setExpires] = useState("");
  const m = useMutation({
    mutationFn: () =>
      post("/api/v1/tokens", {
        body: {
          name,
          role,
          ...(role === "admin" ? {} : { groups: only }),
          ...(scope ? { scope } : {}),
          ...(expires ? { expires_at: new Date(expires).toISOString() } : {}),
        },
      }),
    onSuccess: () => refresh("tokens"),
  });
  const error = m.error instanceof ApiError ? m.error : undefined;
  const others = error?.elsewhere(["name", "role", "groups", "scope", "expires_at"]) ?? [];
  if (m.data)
    return (
      <Modal
        opened
        onClose={onClose}
        title={name}
        closeOnClickOutside={false}
        closeButtonProps={{ "aria-label": t("close") }}
      >
        <Text size="sm">{t("token.once")}</Text>
        <Snippet code={m.data.token} />
      </Modal>
    );
  return (
    <Modal opened onClose={onClose} title={t("token.new")} closeButtonProps={{ "aria-label": t("close") }}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          m.mutate();
        }}
      >
        <Stack gap="sm">
          <TextInput
            label={t("field.name")}
            value={name}
            onChange={(e) => setName(e.currentTarget.value)}
            error={error?.at("name")}
            required
            data-autofocus
          />
          <Select
            label={t("user.role")}
            data={ranks.slice(0, ranks.indexOf(me.role) + 1).map((r) => ({ value: r, label: t(`role.${r}`) }))}
            value={role}
            allowDeselect={false}
            onChange={(r) => setRole(r as typeof role)}
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
          <Select
            label={t("token.scope")}
            data={[
              { value: "all", label: t("token.scope.all") },
              { value: "events", label: t("token.scope.events") },
            ]}
            value={scope || "all"}
            allowDeselect={false}
            onChange={(s) => setScope(s === "events" ? "events" : "")}
            error={error?.at("scope")}
          />
          <TextInput
            label={t("token.expires.opt")}
            type="datetime-local"
            value={expires}
            onChange={(e) => setExpires(e.currentTarget.value)}
            error={error?.at("expires_at")}
          />
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
