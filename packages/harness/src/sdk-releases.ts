// The releases of the E2B SDKs that svc is driven by: the newest patch of each minor. To renew: `pip index versions e2b`, `npm view e2b versions`.

const python =
  "1.11.1 2.0.2 2.1.5 2.2.7 2.3.6 2.4.3 2.5.0 2.6.4 2.7.0 2.8.1 2.9.1 2.10.2 2.11.0 2.12.2 2.13.3 2.14.1 2.15.3 2.16.0 2.17.0 2.18.0 2.19.0 2.20.3 2.21.1 2.22.0 " +
  "2.23.1 2.24.0 2.25.1 2.26.0 2.27.1 2.28.2 2.29.6 2.30.0 2.31.0 2.32.1 2.33.0 2.34.0 2.35.0 2.36.0 2.37.1 2.38.0 2.39.1 2.40.0 2.41.0 2.42.0 2.43.0 2.44.0 " +
  "2.45.1 2.46.4 2.48.0 2.49.1 2.50.0 2.51.0 2.52.1 2.53.1 2.55.1 2.56.0 2.57.0 2.58.0 2.59.0 2.60.0 2.61.0 2.63.0";
const javascript =
  "1.0.7 1.1.1 1.2.5 1.3.0 1.4.0 1.5.3 1.6.0 1.7.1 1.9.1 1.10.0 1.12.0 1.13.2 2.0.3 2.1.5 2.2.10 2.3.4 2.4.2 2.5.0 2.6.4 2.7.0 2.8.4 2.9.1 2.10.4 2.11.1 2.12.1 " +
  "2.13.1 2.14.1 2.15.0 2.16.0 2.18.0 2.19.5 2.20.1 2.21.0 2.23.0 2.24.0 2.25.0 2.26.0 2.27.1 2.28.2 2.29.1 2.30.5 2.31.0 2.32.0 2.33.1 2.34.0 2.35.3 2.36.1 2.37.0 " +
  "2.38.3 2.39.0 2.45.0 2.46.1 2.49.1 2.50.0 2.51.0";

export type Language = "python" | "javascript";
export type Release = {
  readonly language: Language;
  readonly version: string;
  /**
   * `url`: E2B_API_URL and E2B_SANDBOX_URL lead it to a server; `proxy`: the second of them has to end in /proxy, since it asks for a
   * sandbox's health without naming the sandbox; `domain`: only E2B_DOMAIN leads it there, over TLS.
   */
  readonly reach: "url" | "proxy" | "domain";
  /** It refuses keys that are not `e2b_` and hexadecimal digits; `switchable`: unless E2B_VALIDATE_API_KEY=false. */
  readonly key: "any" | "hexadecimal" | "switchable";
};

/** Minors of release 2, the first and the last that check a key's form; from `switchableFrom` on the check can be turned off. */
const keyChecks = { python: { first: 25, switchableFrom: 29, last: 45 }, javascript: { first: 27, switchableFrom: 30, last: 45 } } as const;
/** The first minor of release 2, of both, that reads E2B_SANDBOX_URL. */
const FIRST_WITH_URLS = 7;
/** The last minor release of the JavaScript SDK that sends GET /health without routing headers. */
const LAST_WITHOUT_ADDRESS = 13;

function releaseOf(language: Language, version: string): Release {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const { first, switchableFrom, last } = keyChecks[language];
  const checks = major === 2 && minor >= first && minor <= last;
  return {
    language,
    version,
    reach: major < 2 || minor < FIRST_WITH_URLS ? "domain" : language === "javascript" && minor <= LAST_WITHOUT_ADDRESS ? "proxy" : "url",
    key: checks ? (minor >= switchableFrom ? "switchable" : "hexadecimal") : "any",
  };
}

export const sdkReleases: readonly Release[] = [
  ...python.split(" ").map((version) => releaseOf("python", version)),
  ...javascript.split(" ").map((version) => releaseOf("javascript", version)),
];

export function sdkRelease(language: Language, version: string): Release {
  const found = sdkReleases.find((each) => each.language === language && each.version === version);
  if (found === undefined) throw new Error(`release ${version} of the ${language} SDK is not pinned in sdk-releases.ts`);
  return found;
}
