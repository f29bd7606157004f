import { useQueryClient } from "@tanstack/react-query";
import { createContext, useCallback, useContext, useEffect, useMemo, useState, type ReactNode } from "react";
import { speak } from "../api/client";
import { en } from "./en";
import { zh } from "./zh";

export type Key = keyof typeof en;
export type Language = "en" | "zh";
export type Translate = (key: Key, values?: Record<string, string | number>) => string;

const dictionaries: Record<Language, Record<Key, string>> = { en, zh };
const storageKey = "belfry.language";

function initial(): Language {
  const kept = localStorage.getItem(storageKey);
  if (kept === "en" || kept === "zh") return kept;
  const first = navigator.languages.find((l) => /^(en|zh)\b/i.test(l)) ?? "en";
  return first.toLowerCase().startsWith("zh") ? "zh" : "en";
}

/** spoken also sets the language that the server uses for its texts. */
function spoken(l: Language): Language {
  speak(l === "zh" ? "zh-CN" : "en");
  return l;
}

/** fill replaces the placeholders of a text, such as "{n} runs", by values. */
export function fill(text: string, values?: Record<string, string | number>): string {
  return values ? text.replace(/\{(\w+)\}/g, (place, name: string) => String(values[name] ?? place)) : text;
}

const Context = createContext<{ t: Translate; language: Language; setLanguage: (l: Language) => void } | null>(null);

export function LanguageProvider({ children }: { children: ReactNode }) {
  const [language, set] = useState(() => spoken(initial()));
  useEffect(() => {
    document.documentElement.lang = language === "zh" ? "zh-Hans" : "en";
  }, [language]);
  const client = useQueryClient();
  const setLanguage = useCallback(
    (l: Language) => {
      localStorage.setItem(storageKey, l);
      set(spoken(l));
      void client.invalidateQueries(); // answers have texts in the former language
    },
    [client],
  );
  const value = useMemo(
    () => ({ t: ((key, values) => fill(dictionaries[language][key], values)) as Translate, language, setLanguage }),
    [language, setLanguage],
  );
  return <Context.Provider value={value}>{children}</Context.Provider>;
}

export function useLanguage() {
  const c = useContext(Context);
  if (!c) throw new Error("useLanguage outside its provider");
  return c;
}

export const useT = (): Translate => useLanguage().t;
