// The Chinese dictionary.
export { zh as texts } from "./zh";
export { zhExplain as explanations } from "./explain.zh";
