import { createContext, useContext } from "react";
import type { Me } from "../api/client";

export const MeContext = createContext<Me | null>(null);

/** useMe returns the user who is logged in. */
export function useMe(): Me {
  const me = useContext(MeContext);
  if (!me) throw new Error("useMe outside its provider");
  return me;
}

/** useMay returns what the user may do. It only hides buttons: the server checks the rights of each request. */
export function useMay(): { operate: boolean; administer: boolean } {
  const { role } = useMe();
  return { operate: role !== "viewer", administer: role === "admin" };
}
