// Explanations in the reader's language: why a run waits, how it was routed, why fire times were missed, how the engine ended a run.
import { useCallback } from "react";
import type { Schemas } from "../api/client";
import { useLanguage } from ".";
import { zhExplain } from "./explain.zh";

export type Explanation = Schemas["Explanation"];
export type Code = Explanation["code"];
export type Values = Record<string, unknown>;

/** explain returns the text of an explanation in a language. A code of a newer server shows its English text. */
export function explain(language: "en" | "zh", e: Explanation): string {
  const chinese =
    language === "zh" ? (zhExplain[e.code] as ((v: Values, text: string) => string) | undefined) : undefined;
  return chinese ? chinese(e.args as Values, e.text) : e.text;
}

/** useExplain returns explain for the reader's language; "" without an explanation. */
export function useExplain(): (e: unknown) => string {
  const { language } = useLanguage();
  return useCallback((e) => (e ? explain(language, e as Explanation) : ""), [language]);
}

/** Said is what has a message: a run, an attempt, or a failure on the overview. Belfry's own parts of the message are in parts. */
export type Said = { message: string; message_parts?: Explanation[] };

/** message returns a message in a language. The handler's own words are not translated. */
export function message(language: "en" | "zh", said: Said): string {
  return language === "zh" && said.message_parts?.length
    ? said.message_parts.map((p) => explain(language, p)).join("：")
    : said.message;
}

/** useMessage returns message for the reader's language. */
export function useMessage(): (said: Said) => string {
  const { language } = useLanguage();
  return useCallback((said) => message(language, said), [language]);
}
