// Decodes bytes that came from outside.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/**
 * Decodes UTF-8 bytes.
 *
 * @throws TypeError if the bytes are not UTF-8: with replacement characters two different inputs would become the same text
 */
export const exactText = (bytes: Uint8Array): string => decoder.decode(bytes);
