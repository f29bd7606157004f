import { Text } from "@mantine/core";
import { Link, useLocation } from "wouter";
import { useT } from "../i18n";
import { useTitle } from "../lib/hooks";
import { Empty, PageHead } from "../parts/basics";

/** NotFound is the page of an address that the console does not know. */
export function NotFound() {
  const t = useT();
  const [path] = useLocation();
  useTitle(t("notfound.title"));
  return (
    <>
      <PageHead title={t("notfound.title")} />
      <Empty title={path}>
        <Text size="sm">{t("notfound.text")}</Text>
        <Text size="sm">
          <Link className="link" href="/">
            {t("nav.overview")}
          </Link>{" "}
          ·{" "}
          <Link className="link" href="/jobs">
            {t("nav.jobs")}
          </Link>{" "}
          ·{" "}
          <Link className="link" href="/runs">
            {t("nav.runs")}
          </Link>
        </Text>
      </Empty>
    </>
  );
}
