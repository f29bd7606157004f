import { createContext, useContext } from "react";
import type { Me } from "../api/client";

export const MeContext = createContext<Me | null>(null);

/** useMe says who is logged in. */
export function useMe(): Me {
  const me = useContext(MeContext);
  if (!me) throw new Error("nobody is logged in");
  return me;
}

/** useMay says what the user may do; the server decides, this only spares people buttons that would be refused. */
export function useMay(): { operate: boolean; administer: boolean } {
  const { role } = useMe();
  return { operate: role !== "viewer", administer: role === "admin" };
}
