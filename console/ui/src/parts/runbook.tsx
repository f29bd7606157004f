import { useT } from "../i18n";
import { webAddress } from "../lib/webaddress";

/** Runbook links to the page that says what to do when a job fails. Without an address of the web, it shows nothing. */
export function Runbook({ url }: { url?: string }) {
  const t = useT();
  const address = webAddress(url);
  if (!address) return null;
  return (
    <a className="link" href={address} target="_blank" rel="noopener noreferrer">
      {t("field.runbook_url")}
    </a>
  );
}
