// Texts as the wire and the native core have them: the bytes of UTF-8, one per character.

const ASCII = /^[\0-\x7f]*$/;

export const toWire = (text: string): string => (ASCII.test(text) ? text : Buffer.from(text).toString("latin1"));
export const fromWire = (text: string): string => (ASCII.test(text) ? text : Buffer.from(text, "latin1").toString());
