/** final reports whether a run in this state never changes again. */
export const final = (state: string) => ["succeeded", "failed", "cancelled", "skipped"].includes(state);

/** hasReason reports whether the reason of a run is about its state. Otherwise it is that of an attempt before. */
export const hasReason = (state: string): boolean => final(state) || state === "retrying";
