import { search } from "../api/client";

/** exportAddress is where the file of a group, or of all, is downloaded from. */
export const exportAddress = (group: string): string => "/api/v1/export" + search({ group });
