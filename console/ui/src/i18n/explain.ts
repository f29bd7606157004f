// Explanations in the reader's language: why a run waits, how it was routed, why fire times were missed, how the engine ended a run.
import { useCallback } from "react";
import type { Schemas } from "../api/client";
import { useLanguage } from ".";

export type Explanation = Schemas["Explanation"];
export type Code = Explanation["code"];
export type Values = Record<string, unknown>;

/** Explanations are the texts of explanations in another language than English, the language in which the server sends them. */
export type Explanations = Record<Code, (v: Values, text: string) => string>;

/** explain returns the text of an explanation. A code of a newer server shows its English text. */
export function explain(texts: Explanations | undefined, e: Explanation): string {
  const translated = texts?.[e.code] as Explanations[Code] | undefined;
  return translated ? translated(e.args as Values, e.text) : e.text;
}

/** useExplain returns explain for the reader's language; "" without an explanation. */
export function useExplain(): (e: unknown) => string {
  const { explanations } = useLanguage();
  return useCallback((e) => (e ? explain(explanations, e as Explanation) : ""), [explanations]);
}

/** Said is what has a message: a run, an attempt, or a failure on the overview. Belfry's own parts of the message are in parts. */
export type Said = { message: string; message_parts?: Explanation[] };

/** message returns a message in the language of the texts. The handler's own words are not translated. */
export function message(texts: Explanations | undefined, said: Said): string {
  return texts && said.message_parts?.length
    ? said.message_parts.map((p) => explain(texts, p)).join("：")
    : said.message;
}

/** useMessage returns message for the reader's language. */
export function useMessage(): (said: Said) => string {
  const { explanations } = useLanguage();
  return useCallback((said) => message(explanations, said), [explanations]);
}
