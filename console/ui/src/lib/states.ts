/** final reports whether a run in this state never changes again. */
export const final = (state: string) => ["succeeded", "failed", "cancelled", "skipped"].includes(state);
