import type { Key, Language, Translate } from "../i18n";
import type { BulkAction } from "./bulk";

/** bulkNote says why a bulk action waits, was stopped or failed. The server's note is English, so another language names the case by the state. */
export function bulkNote(t: Translate, language: Language, a: Pick<BulkAction, "state" | "note">): string {
  if (!a.note) return "";
  return language === "en" ? a.note : t(`bulk.note.${a.state}` as Key);
}
