// Words of a Dockerfile as a shell reads them.

/** Removes the escapes that `unquoted` adds for the server, where the text is used here. */
export function literal(text: string): string {
  return text.replaceAll("\\$", "$");
}

export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
