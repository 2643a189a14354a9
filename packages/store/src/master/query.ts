// Parses the query string of a request: parameters are percent-decoded to strings of bytes.

const PERCENT = /%([0-9a-fA-F]{2})/g;

/** Decodes to one character per byte; a percent sign that encodes nothing stays, since keys may contain it. */
export function decodeText(text: string): string {
  return text.includes("%") ? text.replace(PERCENT, (_all, hex: string) => String.fromCharCode(Number.parseInt(hex, 16))) : text;
}

/** Returns the first parameter of that name; undefined if there is none. */
export function searchOf(search: string, name: string, decode = true): string | undefined {
  for (const part of search.split("&")) {
    const equals = part.indexOf("=");
    if ((equals < 0 ? part : part.slice(0, equals)) !== name) continue;
    const value = equals < 0 ? "" : part.slice(equals + 1);
    return decode ? decodeText(value) : value;
  }
  return undefined;
}

/** Returns a parameter name that looks like a misspelt `tenant_id`: ignoring it would act on another tenant's keys. */
export const misspeltTenant = (names: readonly string[]): string | undefined =>
  names.find((name) => name !== "tenant_id" && /^tenant(id)?$/.test(decodeText(name).toLowerCase().replace(/[-_ ]/g, "")));

export const searchNames = (search: string): string[] => search.split("&").map((part) => part.split("=", 1)[0] ?? "");

export const ownMembers = <T>(of: Readonly<Record<string, T>>, name: string): T | undefined => (Object.hasOwn(of, name) ? of[name] : undefined);
