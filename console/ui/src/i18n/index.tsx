import { useQueryClient } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { speak } from "../api/client";
import type { en } from "./en";
import type { Explanations } from "./explain";

export type Key = keyof typeof en;
export type Language = "en" | "zh";
export type Translate = (key: Key, values?: Record<string, string | number>) => string;

/** Dictionary has the texts of a language, and the explanations that it does not take from the server. */
export interface Dictionary {
  texts: Record<Key, string>;
  explanations?: Explanations;
}

/** A page loads only the dictionary of its language. */
const dictionaries: Record<Language, () => Promise<Dictionary>> = {
  en: () => import("./english"),
  zh: () => import("./chinese"),
};
const storageKey = "belfry.language";

interface Spoken extends Dictionary {
  language: Language;
}

function initial(): Language {
  const kept = localStorage.getItem(storageKey);
  if (kept === "en" || kept === "zh") return kept;
  const first = navigator.languages.find((l) => /^(en|zh)\b/i.test(l)) ?? "en";
  return first.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** load loads a language, and sets it as the language that the server uses for its texts. */
async function load(language: Language): Promise<Spoken> {
  const dictionary = await dictionaries[language]();
  speak(language === "zh" ? "zh-CN" : "en");
  return { language, ...dictionary };
}

/** firstLanguage loads the language that the user has selected before, or that of the browser. */
export const firstLanguage = (): Promise<Spoken> => load(initial());

/** fill replaces the placeholders of a text, such as "{n} runs", by values. */
export function fill(text: string, values?: Record<string, string | number>): string {
  return values ? text.replace(/\{(\w+)\}/g, (place, name: string) => String(values[name] ?? place)) : text;
}

interface Languages {
  t: Translate;
  /** has reports whether there is a text for a key. */
  has: (key: string) => key is Key;
  language: Language;
  explanations?: Explanations;
  setLanguage: (l: Language) => void;
}

const Context = createContext<Languages | null>(null);

export function LanguageProvider({ first, children }: { first: Spoken; children: ReactNode }) {
  const [{ language, texts, explanations }, set] = useState(first);
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
  }, [language]);
  const client = useQueryClient();
  const setLanguage = useCallback(
    (l: Language) => {
      localStorage.setItem(storageKey, l);
      void load(l).then((loaded) => {
        set(loaded);
        return client.invalidateQueries(); // answers have texts in the former language
      });
    },
    [client],
  );
  const value = useMemo<Languages>(
    () => ({
      t: (key, values) => fill(texts[key], values),
      has: (key): key is Key => key in texts,
      language,
      explanations,
      setLanguage,
    }),
    [texts, language, explanations, setLanguage],
  );
  return <Context.Provider value={value}>{children}</Context.Provider>;
}

export function useLanguage(): Languages {
  const c = useContext(Context);
  if (!c) throw new Error("useLanguage outside its provider");
  return c;
}

export const useT = (): Translate => useLanguage().t;
