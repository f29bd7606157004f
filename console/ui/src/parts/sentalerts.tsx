import { Text } from "@mantine/core";
import { Link } from "wouter";
import { get, type Schemas } from "../api/client";
import { useT } from "../i18n";
import { Instant, Section } from "./basics";
import { Pages } from "./pages";

type Delivery = Schemas["AlertEntry"]["deliveries"][number];

/** shown returns the deliveries that a row has place for: both of two, otherwise a failed one, or the first. */
const shown = (all: Delivery[]) =>
  all.length <= 2 ? all : [all.find((d) => d.state === "failed") ?? all[0]].filter((d) => d !== undefined);

const deliveryClass = { pending: "pill-warn", delivered: "pill-good", failed: "pill-bad" } as const;

/** SentAlerts lists the sent alerts, and the result of each delivery. */
export function SentAlerts() {
  const t = useT();
  return (
    <Section title={t("alerts.told")}>
      <Pages<Schemas["AlertEntry"]>
        name={["alerts"]}
        read={(cursor) => get("/api/v1/alerts", { query: { cursor, limit: 25 } })}
        empty={
          <Text size="sm" c="dimmed">
            {t("alerts.none")}
          </Text>
        }
      >
        {(items) => (
          <table className="list">
            <thead>
              <tr>
                <th>{t("audit.when")}</th>
                <th>{t("field.job")}</th>
                <th>{t("alerts.what")}</th>
                <th>{t("alerts.deliveries")}</th>
              </tr>
            </thead>
            <tbody>
              {items.map((a) => (
                <tr key={a.id}>
                  <td className="num">
                    <Instant at={a.at} now={new Date()} />
                  </td>
                  <td className="grow">
                    <div className="clamp" title={a.job}>
                      {a.job_id ? (
                        <Link className="plain-link" href={`/jobs/${a.job_id}`}>
                          {a.job}
                        </Link>
                      ) : (
                        a.job
                      )}{" "}
                      <span className="faint">{a.group}</span>
                    </div>
                  </td>
                  <td>
                    {a.run_id ? (
                      <Link className="row-link" href={`/runs/${a.run_id}`}>
                        {t(`alert.${a.kind}`)}
                      </Link>
                    ) : (
                      t(`alert.${a.kind}`)
                    )}
                    {(a.count ?? 0) > 1 && <span className="faint"> ×{a.count}</span>}
                  </td>
                  <td className="message">
                    {shown(a.deliveries).map((d) => (
                      <div key={d.channel} className="clamp one" title={d.error}>
                        <span className={`pill ${deliveryClass[d.state]}`}>{t(`delivery.${d.state}`)}</span> {d.channel}
                        {d.tries > 1 && <span className="faint"> {t("alerts.tries", { n: d.tries })}</span>}
                        {d.error && <span className="bad"> {d.error}</span>}
                      </div>
                    ))}
                    {a.deliveries.length > 2 && t("bulk.more", { n: a.deliveries.length - 1 })}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Pages>
    </Section>
  );
}
