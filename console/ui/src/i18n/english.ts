// The English dictionary. Explanations come in English from the server.
export { en as texts } from "./en";
