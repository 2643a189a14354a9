// The text of bytes that came from outside.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * The text of UTF-8 bytes.
 *
 * @throws TypeError where the bytes are not UTF-8: with replacement characters two different texts would become one
 */
export const exactText = (bytes: Uint8Array): string => decoder.decode(bytes);
