/** nonce is the nonce of the page's content security policy. Style elements that are added at run time need it. */
export const nonce = document.querySelector<HTMLMetaElement>('meta[name="csp-nonce"]')?.content ?? "";

// Libraries that lock scrolling under dialogs read it from this variable.
(globalThis as { __webpack_nonce__?: string }).__webpack_nonce__ = nonce;
