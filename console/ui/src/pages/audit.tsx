import { Button } from "@mantine/core";
import { useState } from "react";
import { get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { useFilters, useTitle } from "../lib/hooks";
import { Instant, PageHead } from "../parts/basics";
import { objectName, ShowChange } from "../parts/changelist";
import { SearchField } from "../parts/filters";
import { Pages } from "../parts/pages";

export default function Audit() {
  const t = useT();
  useTitle(t("nav.audit"));
  const [f, setF] = useFilters(["object", "actor", "action"] as const);
  const [shown, setShown] = useState<Schemas["Change"]>();
  return (
    <>
      <PageHead title={t("nav.audit")} />
      <div className="filters">
        <SearchField value={f.object} onChange={(object) => setF({ object })} label={`${t("audit.object")} (job/7)`} />
        <SearchField value={f.actor} onChange={(actor) => setF({ actor })} label={t("audit.who")} />
        <SearchField
          value={f.action}
          onChange={(action) => setF({ action })}
          label={`${t("audit.what")} (auth.login)`}
        />
      </div>
      <Pages<Schemas["Change"]>
        name={["audit", f]}
        read={(cursor) =>
          get("/api/v1/audit", {
            query: {
              cursor,
              limit: 50,
              object: f.object || undefined,
              actor: f.actor || undefined,
              action: f.action || undefined,
            },
          })
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("audit.when")}</th>
                <th className="mid">{t("audit.who")}</th>
                <th>{t("audit.what")}</th>
                <th className="mid">{t("audit.object")}</th>
                <th className="wide">{t("audit.remote")}</th>
                <th>
                  <span className="sr-only">{t("audit.change")}</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {items.map((c) => (
                <tr key={c.id}>
                  <td className="num">
                    <Instant at={c.at} now={new Date()} />
                  </td>
                  <td className="mid">
                    <div className="clamp" title={c.actor}>
                      {c.actor}
                    </div>
                  </td>
                  <td className="grow mono">
                    <div className="clamp">{c.action}</div>
                    <div className="phone-only one-line">
                      {c.actor} · {c.object} {objectName(c)}
                    </div>
                  </td>
                  <td className="mid">
                    <div className="clamp">
                      <span className="mono">{c.object}</span> {objectName(c)}
                    </div>
                  </td>
                  <td className="wide mono">{c.remote}</td>
                  <td className="row-actions">
                    {(c.before != null || c.after != null) && (
                      <Button size="compact-xs" variant="subtle" color="gray" onClick={() => setShown(c)}>
                        {t("audit.change")}
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
      {shown && <ShowChange change={shown} onClose={() => setShown(undefined)} />}
    </>
  );
}
