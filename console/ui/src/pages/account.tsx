import { Button, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation } from "wouter";
import { call, get, post, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { useMe } from "../lib/me";
import { Confirm, useComplain, useRefresh } from "../parts/actions";
import { Ago, Facts, Instant, PageHead, Section } from "../parts/basics";
import { Pages } from "../parts/pages";
import { ChangePassword } from "../parts/password";

type Session = Schemas["Session"];

export default function Account() {
  const t = useT();
  useTitle(t("account.title"));
  const me = useMe();
  const client = useQueryClient();
  const [, navigate] = useLocation();
  const refresh = useRefresh();
  const [leaving, setLeaving] = useState(false);
  return (
    <>
      <PageHead title={t("account.title")} />
      <Section title={me.username}>
        <Facts
          of={[
            [t("user.role"), t(`role.${me.role}`)],
            [t("user.groups"), me.role === "admin" ? t("user.all") : me.groups.join(", ") || t("none")],
            [t("account.kind"), t(`account.kind.${me.kind}`)],
          ]}
        />
        <Text size="sm" mt={6}>
          <Link className="link" href="/tokens">
            {t("nav.tokens")}
          </Link>
        </Text>
      </Section>
      {me.kind === "local" && (
        <Section title={t("password.change")}>
          <ChangePassword onDone={() => void refresh("sessions")} />
        </Section>
      )}
      <Section
        title={t("account.sessions")}
        right={
          <Button size="compact-xs" variant="default" onClick={() => setLeaving(true)}>
            {t("account.everywhere")}
          </Button>
        }
      >
        <Pages<Session>
          name={["sessions"]}
          every={60_000}
          read={(cursor) => get("/api/v1/auth/sessions", { query: { cursor, limit: 100 } })}
        >
          {(items) => (
            <table className="list">
              <thead>
                <tr>
                  <th>{t("account.browser")}</th>
                  <th className="mid">{t("audit.remote")}</th>
                  <th className="wide">{t("account.since")}</th>
                  <th>{t("token.used")}</th>
                  <th>
                    <span className="sr-only">{t("actions")}</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {items.map((s) => (
                  <tr key={s.id}>
                    <td className="grow">
                      <div className="clamp">{s.user_agent || "–"}</div>
                    </td>
                    <td className="mid">{s.remote}</td>
                    <td className="wide num">
                      <Instant at={s.created_at} />
                    </td>
                    <td className="num">
                      {s.current ? (
                        <span className="pill pill-good">{t("account.this")}</span>
                      ) : (
                        <Ago at={s.last_used_at} />
                      )}
                    </td>
                    <td className="row-actions">{!s.current && <End session={s} />}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          )}
        </Pages>
      </Section>
      {leaving && (
        <Confirm
          title={t("account.everywhere")}
          text={t("account.everywhere.text")}
          action={t("account.everywhere")}
          onClose={() => setLeaving(false)}
          onConfirm={async () => {
            await post("/api/v1/auth/logout-everywhere");
            client.clear();
            navigate("/login");
          }}
        />
      )}
    </>
  );
}

function End({ session }: { session: Session }) {
  const t = useT();
  const refresh = useRefresh();
  const m = useMutation({
    mutationFn: () => call("delete", "/api/v1/auth/sessions/{id}", { path: { id: session.id } }),
    onError: useComplain(),
    onSettled: () => refresh("sessions"),
  });
  return (
    <Button size="compact-xs" variant="subtle" color="red" loading={m.isPending} onClick={() => m.mutate()}>
      {t("logout")}
    </Button>
  );
}
