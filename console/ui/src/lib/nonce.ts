/** nonce lets style elements that are made while the page runs pass its content security policy. */
export const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";

// Libraries that lock scrolling under dialogs look for it here.
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;
