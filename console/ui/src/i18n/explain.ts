// Explanations in the reader's language: why a run waits, how it was routed, why fire times were missed.
import { useCallback } from "react";
import type { Schemas } from "../api/client";
import { useLanguage } from ".";
import { zhExplain } from "./explain.zh";

export type Explanation = Schemas["Explanation"];
export type Code = Explanation["code"];
export type Values = Record<string, unknown>;

/** explain returns the text of an explanation in a language. A code of a newer server shows its English text. */
export function explain(language: "en" | "zh", e: Explanation): string {
  const chinese = language === "zh" ? (zhExplain[e.code] as ((v: Values, text: string) => string) | undefined) : undefined;
  return chinese ? chinese(e.args as Values, e.text) : e.text;
}

/** useExplain returns explain for the reader's language; "" without an explanation. */
export function useExplain(): (e: unknown) => string {
  const { language } = useLanguage();
  return useCallback((e) => (e ? explain(language, e as Explanation) : ""), [language]);
}
