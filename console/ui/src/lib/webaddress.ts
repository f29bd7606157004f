/** webAddress returns an address that a link may open: http or https. It returns undefined for every other text. */
export function webAddress(text: string | undefined): string | undefined {
  try {
    const url = new URL(text ?? "");
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : undefined;
  } catch {
    return undefined; // the text is no address
  }
}
