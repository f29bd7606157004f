/** inTurn calls act for each item, at most atOnce at a time, until all are done or the signal aborts. */
export async function inTurn<I>(
  items: readonly I[],
  atOnce: number,
  act: (item: I) => Promise<void>,
  signal?: AbortSignal,
): Promise<void> {
  const rest = items.values();
  const worker = async () => {
    for (const item of rest) {
      if (signal?.aborted) return;
      await act(item);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, items.length) }, worker));
}
