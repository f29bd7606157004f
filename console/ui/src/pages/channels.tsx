import { Button, Text } from "@mantine/core";
import { useState } from "react";
import { call, get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { Empty, Instant, PageHead, Snippet } from "../parts/basics";
import { Icon, icons } from "../parts/icons";
import { ChannelForm } from "../parts/channelform";
import { ChannelTest } from "../parts/channeltest";
import { ListTable } from "../parts/listtable";
import { Pages } from "../parts/pages";
import { SentAlerts } from "../parts/sentalerts";
import { channelFile } from "../parts/snippets";

type Channel = Schemas["Channel"];

export default function Channels() {
  const t = useT();
  useTitle(t("nav.channels"));
  const [form, setForm] = useState<Channel | "new">();
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
          <ListTable
            items={items}
            id={(c) => c.name}
            name={(c) => c.name}
            columns={[
              {
                head: t("field.name"),
                className: "grow",
                cell: (c) => (
                  <>
                    <button type="button" className="row-button clamp" onClick={() => setForm(c)}>
                      {c.name}
                    </button>
                    <div className="clamp one faint" title={c.description}>
                      {c.description}
                    </div>
                  </>
                ),
              },
              { head: t("channel.kind"), cell: (c) => t(`channel.kind.${c.kind}`) },
              {
                head: t("channel.to"),
                className: "mid message",
                cell: (c) => <div className="clamp">{c.email ? c.email.to.join(", ") : c.url}</div>,
              },
              { head: t("audit.when"), className: "wide num", cell: (c) => <Instant at={c.updated_at} /> },
            ]}
            beside={(c) => <ChannelTest name={c.name} />}
            actions={(c) => [{ label: t("edit"), run: () => setForm(c) }]}
            removal={{
              title: (c) => t("channel.delete", { name: c.name }),
              text: t("channel.delete.text"),
              run: (c) => call("delete", "/api/v1/alert-channels/{name}", { path: { name: c.name } }),
              refresh: "alert-channels",
            }}
          />
        )}
      </Pages>
      <div className="below">
        <SentAlerts />
      </div>
      {form && <ChannelForm channel={form === "new" ? undefined : form} onClose={() => setForm(undefined)} />}
    </>
  );
}
