import { Button, Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation } from "@tanstack/react-query";
import { get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { useComplain } from "../parts/actions";
import { Empty, Instant, PageHead, Snippet } from "../parts/basics";
import { Pages } from "../parts/pages";
import { channelFile } from "../parts/snippets";

export default function Channels() {
  const t = useT();
  useTitle(t("nav.channels"));
  return (
    <>
      <PageHead title={t("nav.channels")} />
      <Pages<Schemas["Channel"]> name={["alert-channels"]} read={(cursor) => get("/api/v1/alert-channels", { query: { cursor, limit: 100 } })}
        empty={<Empty title={t("list.none")}><Text size="sm">{t("channel.teach")}</Text><Snippet code={channelFile} /></Empty>}>
        {(items) => (
          <table className="list">
            <thead><tr><th>{t("field.name")}</th><th>{t("channel.kind")}</th><th className="mid">{t("channel.to")}</th><th className="wide">{t("audit.when")}</th><th><span className="sr-only">{t("actions")}</span></th></tr></thead>
            <tbody>{items.map((c) => (
              <tr key={c.name}><td className="grow">{c.name} <div className="faint">{c.description}</div></td><td>{c.kind}</td><td className="mid message">{c.email ? c.email.to.join(", ") : c.url}</td><td className="wide num"><Instant at={c.updated_at} /></td><td className="row-actions"><Test name={c.name} /></td></tr>
            ))}</tbody>
          </table>
        )}
      </Pages>
    </>
  );
}

function Test({ name }: { name: string }) {
  const t = useT();
  const m = useMutation({
    mutationFn: () => post("/api/v1/alert-channels/{name}/test", { path: { name } }),
    onSuccess: (a) => notifications.show({ color: a.delivered ? "blue" : "red", message: t(a.delivered ? "channel.sent" : "channel.failed", { detail: a.detail }) }),
    onError: useComplain(),
  });
  return <Button size="compact-xs" variant="default" loading={m.isPending} onClick={() => m.mutate()}>{t("channel.test")}</Button>;
}
