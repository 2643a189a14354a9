// A flag that may be given several times, for a setting that is a list.

/** Joins all `--FLAG VALUE` and `--FLAG=VALUE` to one flag with a JSON list, since a setting is given once. */
export function joinRepeated(argv: readonly string[], flag: string): string[] {
  const values: string[] = [];
  const others: string[] = [];
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at] as string;
    const next = argv[at + 1];
    if (word.startsWith(`--${flag}=`)) values.push(word.slice(flag.length + 3));
    else if (word === `--${flag}` && next !== undefined && !next.startsWith("-")) {
      values.push(next);
      at++;
    } else others.push(word);
  }
  return values.length === 0 ? others : [...others, `--${flag}=${JSON.stringify(values)}`];
}
