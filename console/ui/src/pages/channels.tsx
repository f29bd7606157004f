import { ActionIcon, Button, Group, Menu, Text } from "@mantine/core";
import { useState } from "react";
import { call, get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { Confirm, useRefresh } from "../parts/actions";
import { Empty, Icon, icons, Instant, PageHead, Snippet } from "../parts/basics";
import { ChannelForm } from "../parts/channelform";
import { ChannelTest } from "../parts/channeltest";
import { Pages } from "../parts/pages";
import { SentAlerts } from "../parts/sentalerts";
import { channelFile } from "../parts/snippets";

type Channel = Schemas["Channel"];

export default function Channels() {
  const t = useT();
  useTitle(t("nav.channels"));
  const refresh = useRefresh();
  const [form, setForm] = useState<Channel | "new">();
  const [deleting, setDeleting] = useState<Channel>();
  const add = (
    <Button size="xs" w="fit-content" leftSection={<Icon d={icons.plus} size={14} />} onClick={() => setForm("new")}>
      {t("channel.new")}
    </Button>
  );
  return (
    <>
      <PageHead title={t("nav.channels")}>{add}</PageHead>
      <Pages<Channel>
        name={["alert-channels"]}
        read={(cursor) => get("/api/v1/alert-channels", { query: { cursor, limit: 100 } })}
        empty={
          <Empty title={t("channel.none")}>
            <Text size="sm">{t("channel.teach")}</Text>
            {add}
            <details>
              <summary>{t("channel.cli")}</summary>
              <Snippet code={channelFile} />
            </details>
          </Empty>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("field.name")}</th>
                <th>{t("channel.kind")}</th>
                <th className="mid">{t("channel.to")}</th>
                <th className="wide">{t("audit.when")}</th>
                <th>
                  <span className="sr-only">{t("actions")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((c) => (
                <tr key={c.name}>
                  <td className="grow">
                    <button type="button" className="row-button clamp" onClick={() => setForm(c)}>
                      {c.name}
                    </button>
                    <div className="clamp one faint" title={c.description}>
                      {c.description}
                    </div>
                  </td>
                  <td>{t(`channel.kind.${c.kind}`)}</td>
                  <td className="mid message">
                    <div className="clamp">{c.email ? c.email.to.join(", ") : c.url}</div>
                  </td>
                  <td className="wide num">
                    <Instant at={c.updated_at} />
                  </td>
                  <td className="row-actions">
                    <Group gap={2} wrap="nowrap" justify="flex-end">
                      <ChannelTest name={c.name} />
                      <Menu position="bottom-end">
                        <Menu.Target>
                          <ActionIcon variant="subtle" color="gray" size="sm" aria-label={t("more", { name: c.name })}>
                            ⋯
                          </ActionIcon>
                        </Menu.Target>
                        <Menu.Dropdown>
                          <Menu.Item onClick={() => setForm(c)}>{t("edit")}</Menu.Item>
                          <Menu.Item color="red" onClick={() => setDeleting(c)}>
                            {t("delete")}
                          </Menu.Item>
                        </Menu.Dropdown>
                      </Menu>
                    </Group>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
      <div className="below">
        <SentAlerts />
      </div>
      {form && <ChannelForm channel={form === "new" ? undefined : form} onClose={() => setForm(undefined)} />}
      {deleting && (
        <Confirm
          title={t("channel.delete", { name: deleting.name })}
          text={t("channel.delete.text")}
          action={t("delete")}
          onClose={() => setDeleting(undefined)}
          onConfirm={async () => {
            await call("delete", "/api/v1/alert-channels/{name}", { path: { name: deleting.name } });
            await refresh("alert-channels");
          }}
        />
      )}
    </>
  );
}
