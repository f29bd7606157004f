import { search } from "../api/client";

/** exportAddress returns the address of the export of a group, or of all groups. */
export const exportAddress = (group: string): string => "/api/v1/export" + search({ group });
