import { useT } from "../i18n";
import type { BulkAction } from "../lib/bulk";

const looks = {
  waiting: "",
  running: "pill-live",
  done: "pill-good",
  stopped: "pill-warn",
  failed: "pill-bad",
} as const;

/** BulkState shows the state of a bulk action. */
export function BulkState({ state }: { state: BulkAction["state"] }) {
  const t = useT();
  return <span className={`pill ${looks[state]}`}>{t(`bulk.state.${state}`)}</span>;
}
