// Drafts of forms that survive a reload and an expired session. They are in the storage of the tab, apart for each user.
import type { JobInput } from "../api/client";

export interface KeptDraft {
  draft: JobInput;
  yaml?: string; // the text of the YAML tab, which may be faulty
  at: string;
}

const prefix = "belfry.draft.";
const place = (user: string, form: string) => `${prefix}${user}.${form}`;

export function keepDraft(user: string, form: string, kept: Omit<KeptDraft, "at">) {
  try {
    sessionStorage.setItem(place(user, form), JSON.stringify({ ...kept, at: new Date().toISOString() }));
  } catch {
    // The storage is full or forbidden. The form works without it.
  }
}

export function keptDraft(user: string, form: string): KeptDraft | undefined {
  try {
    return (JSON.parse(sessionStorage.getItem(place(user, form)) ?? "null") as KeptDraft | null) ?? undefined;
  } catch {
    return undefined;
  }
}

export const dropDraft = (user: string, form: string) => sessionStorage.removeItem(place(user, form));

/** dropDrafts forgets all drafts, because the user logs out. */
export function dropDrafts() {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(prefix)) sessionStorage.removeItem(name);
}
